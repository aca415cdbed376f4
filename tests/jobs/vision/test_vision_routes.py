"""Routes of data sets of pictures, called as clients call them."""

from __future__ import annotations

import asyncio
import io
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from testing.jobs.web import WebService
from testing.vision.made_films import film_bytes
from testing.vision.made_models import model_zip
from testing.vision.made_pictures import encoded

from weft.jobs.store.tables import user
from weft.jobs.store.vision_tables import vision_model
from weft.vision.formats.archives import safe_place
from weft.vision.pictures import decode


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def make(client: httpx.Client, name: str) -> str:
    return str(ok(client.post("/vision/datasets", json={"name": name}), 201)["id"])


def upload(client: httpx.Client, dataset: str, data: bytes, name: str, **query: str) -> Any:
    return ok(
        client.post(f"/vision/datasets/{dataset}/upload", content=data, params={"name": name, **query}), 201
    )


def finished(client: httpx.Client, task: Any) -> Any:
    deadline = time.monotonic() + 60
    while task["state"] in ("waiting", "running") and time.monotonic() < deadline:
        time.sleep(0.02)
        task = ok(client.get(f"/vision/tasks/{task['id']}"))
    return task


@pytest.fixture(scope="module")
def ann(web: WebService) -> httpx.Client:
    return web.user("ann")


@pytest.fixture(scope="module")
def ben(web: WebService) -> httpx.Client:
    return web.user("ben")


def test_pictures_are_uploaded_listed_labelled_and_shown(ann: httpx.Client) -> None:
    dataset = make(ann, "cells")
    for seed in range(3):
        upload(ann, dataset, encoded(".jpg", seed=seed), f"<b>{seed}.jpg")
    page = ok(ann.get(f"/vision/datasets/{dataset}/files", params={"limit": 2, "state": "unlabelled"}))
    assert page["total"] == 3
    assert [file["name"] for file in page["files"]] == ["<b>0.jpg", "<b>1.jpg"]
    rest = ok(ann.get(f"/vision/datasets/{dataset}/files", params={"limit": 2, "after": page["next"]}))
    assert len(rest["files"]) == 1
    assert rest["next"] is None
    file = page["files"][0]
    shape = {"label": "wbc", "box": [1, 2, 10, 12]}
    saved = ok(
        ann.put(
            f"/vision/files/{file['id']}/labels", json={"revision": 0, "shapes": [shape], "category": "blood"}
        )
    )
    assert (saved["revision"], saved["state"], saved["labels"]) == (1, "labelled", {"wbc": 1})
    shown = ok(ann.get(f"/vision/datasets/{dataset}"))
    assert shown["counts"]["labelled"] == 1
    assert [label["name"] for label in shown["labels"]] == ["wbc"]
    picture = ann.get(f"/vision/files/{file['id']}/picture")
    assert picture.headers["content-type"] == "image/jpeg"
    assert picture.content == encoded(".jpg", seed=0)
    small = ann.get(f"/vision/files/{file['id']}/thumbnail", params={"side": 64})
    assert decode(small.content).shape == (24, 32, 3)


def test_nobody_overwrites_the_labels_of_another(ann: httpx.Client) -> None:
    dataset = make(ann, "twice")
    file = upload(ann, dataset, encoded(), "a.jpg")["file"]["id"]
    first = {"revision": 0, "shapes": [{"label": "a", "box": [0, 0, 5, 5]}]}
    second = {"revision": 0, "shapes": [{"label": "b", "box": [0, 0, 6, 6]}]}
    ok(ann.put(f"/vision/files/{file}/labels", json=first))
    refused = ann.put(f"/vision/files/{file}/labels", json=second)
    assert refused.status_code == 409
    assert refused.json()["present"]["shapes"][0]["label"] == "a"
    assert refused.json()["present"]["revision"] == 1
    assert ok(ann.get(f"/vision/files/{file}"))["labels"] == {"a": 1}


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ({"label": "a", "box": [0, 0, 100, 5]}, "lie in the picture"),
        ({"label": "a", "box": [5, 5, 5, 9]}, "width and a height"),
        (
            {"label": "a", "box": [0, 0, 9, 9], "polygons": [[[0, 0], [9, 8], [9, 0], [0, 9]]]},
            "cross itself",
        ),
        ({"label": " ", "box": [0, 0, 5, 5]}, "name"),
        ({"label": "a", "box": [0, 0, 5, 5], "mask": {"size": [24, 32], "counts": "1"}}, "add up"),
    ],
)
def test_bad_shapes_are_refused_with_a_sentence(ann: httpx.Client, shape: Any, word: str) -> None:
    dataset = next((d["id"] for d in ok(ann.get("/vision/datasets"))["datasets"] if d["name"] == "bad"), None)
    dataset = dataset or make(ann, "bad")
    file = upload(ann, dataset, encoded(), "a.jpg", skip_duplicates="true")["file"]["id"]
    answer = ann.put(f"/vision/files/{file}/labels", json={"revision": 0, "shapes": [shape]})
    assert answer.status_code == 422
    assert word in answer.json()["error"]["text"]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"text", "a.png"),
        (encoded(width=300, height=300)[:-300], "a.jpg"),
        (b"", "a.jpg"),
        (b"", "a.mp4"),
        (b"no film", "a.mp4"),
    ],
)
def test_bad_uploads_are_refused_and_leave_nothing(
    ann: httpx.Client, web: WebService, data: bytes, name: str
) -> None:
    dataset = make(ann, f"refused {name} {len(data)}")
    answer = ann.post(f"/vision/datasets/{dataset}/upload", content=data, params={"name": name})
    assert answer.status_code == 422
    assert ok(ann.get(f"/vision/datasets/{dataset}/files"))["total"] == 0
    assert list((web.folder / "vision/incoming").iterdir()) == []


def test_a_zip_is_imported_in_the_background_and_exported_again(ann: httpx.Client, web: WebService) -> None:
    dataset = make(ann, "zipped")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for seed in range(4):
            archive.writestr(f"flowers/{'rose' if seed % 2 else 'tulip'}/{seed}.jpg", encoded(seed=seed))
        archive.writestr("flowers/rose/broken.jpg", b"\xff\xd8\xff\xe0")
    task = finished(ann, upload(ann, dataset, packed.getvalue(), "flowers.zip")["task"])
    assert task["state"] == "done"
    assert task["result"] == {"added": 4, "there": 0, "left_out": 1}
    assert "broken.jpg" in task["problems"][0]
    assert list((web.folder / "vision/uploads").iterdir()) == []
    shown = ok(ann.get(f"/vision/datasets/{dataset}"))
    assert {one["name"]: one["pictures"] for one in shown["categories"]} == {"rose": 2, "tulip": 2}
    for format in ("coco", "yolo", "voc", "ibm", "folders"):
        answer = ann.get(f"/vision/datasets/{dataset}/export", params={"format": format})
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert sum(name.endswith(".jpg") for name in archive.namelist()) == 4
            assert all(safe_place(name, "x") for name in archive.namelist())
    version = ok(ann.post(f"/vision/datasets/{dataset}/versions", json={"note": "first"}), 201)
    again = ok(ann.post(f"/vision/datasets/{dataset}/versions", json={}), 201)
    assert (version["number"], again["number"], version["pictures"]) == (1, 1, 4)
    health = ok(ann.get(f"/vision/datasets/{dataset}/health", params={"near": "true"}))
    assert "few" in [issue["kind"] for issue in health["issues"]]


def test_a_zip_that_leads_outside_fails_as_a_whole(ann: httpx.Client) -> None:
    dataset = make(ann, "slip")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.jpg", encoded())
        archive.writestr("../../b.jpg", encoded())
    task = finished(ann, upload(ann, dataset, packed.getvalue(), "slip.zip")["task"])
    assert task["state"] == "failed"
    assert "below its own folder" in task["message"]
    assert ok(ann.get(f"/vision/datasets/{dataset}"))["counts"]["pictures"] == 0


def test_users_see_only_what_is_theirs_or_shared(
    ann: httpx.Client, ben: httpx.Client, web: WebService
) -> None:
    dataset = make(ann, "private")
    file = upload(ann, dataset, encoded(), "a.jpg")["file"]["id"]
    assert "private" not in [one["name"] for one in ok(ben.get("/vision/datasets"))["datasets"]]
    for path in (
        f"/vision/datasets/{dataset}",
        f"/vision/datasets/{dataset}/files",
        f"/vision/datasets/{dataset}/export",
        f"/vision/files/{file}",
        f"/vision/files/{file}/picture",
        f"/vision/files/{file}/thumbnail",
    ):
        assert ben.get(path).status_code == 404, path
    assert ben.put(f"/vision/files/{file}/labels", json={"revision": 0}).status_code == 404
    ok(ann.patch(f"/vision/datasets/{dataset}", json={"shares": ["ben"]}))
    assert ok(ben.get(f"/vision/datasets/{dataset}"))["mine"] is False
    assert ok(ben.put(f"/vision/files/{file}/labels", json={"revision": 0, "category": "x"}))["revision"] == 1
    assert ben.delete(f"/vision/datasets/{dataset}").status_code == 403
    assert ok(web.admin().get(f"/vision/datasets/{dataset}"))["owner"] == "ann"
    assert ann.delete(f"/vision/datasets/{dataset}").status_code == 204
    assert ann.get(f"/vision/files/{file}").status_code == 404


def test_many_files_are_changed_at_once(ann: httpx.Client) -> None:
    source, target = make(ann, "many"), make(ann, "other")
    ids = [upload(ann, source, encoded(seed=seed), f"{seed}.jpg")["file"]["id"] for seed in range(4)]
    made = {"label": "a", "box": [0, 0, 5, 5], "confidence": 0.9, "model": "m@1"}
    doubtful = {"label": "a", "box": [5, 5, 9, 9], "confidence": 0.3, "model": "m@1"}
    ok(ann.put(f"/vision/files/{ids[0]}/labels", json={"revision": 0, "shapes": [made, doubtful]}))

    def change(**asked: Any) -> Any:
        return ok(ann.post(f"/vision/datasets/{source}/change", json=asked))

    assert ok(ann.get(f"/vision/datasets/{source}"))["counts"]["auto"] == 1
    assert change(action="reject", filter={"state": "auto"}, confidence=0.5) == {"changed": 1, "left": 0}
    assert change(action="accept", files=ids) == {"changed": 1, "left": 3}
    assert ok(ann.get(f"/vision/datasets/{source}"))["counts"]["labelled"] == 1
    assert change(action="categorise", files=ids[1:], category="dog")["changed"] == 3
    assert change(action="copy", files=ids[:2], target=target)["changed"] == 2
    assert change(action="move", filter={"category": "dog"}, target=target)["changed"] == 3
    assert change(action="delete", files=[*ids, "no"]) == {"changed": 1, "left": 4}
    found = ok(
        ann.get(f"/vision/datasets/{target}/files", params={"query": 'category == "dog" or label == "a"'})
    )
    assert found["total"] == 5
    assert ann.get(f"/vision/datasets/{target}/files", params={"query": "width >"}).status_code == 422


def test_labels_are_renamed_ordered_and_kept_while_used(ann: httpx.Client) -> None:
    dataset = make(ann, "labels")
    file = upload(ann, dataset, encoded(), "a.jpg")["file"]["id"]
    shape = {"label": "kat", "box": [0, 0, 5, 5]}
    ok(ann.put(f"/vision/files/{file}/labels", json={"revision": 0, "shapes": [shape]}))
    wanted = [{"name": "dog", "colour": "#00ff00"}, {"name": "cat", "was": "kat"}]
    shown = ok(ann.put(f"/vision/datasets/{dataset}/labels", json={"labels": wanted}))
    assert [(one["name"], one["pictures"]) for one in shown["labels"]] == [("dog", 0), ("cat", 1)]
    assert ok(ann.get(f"/vision/files/{file}"))["labels"] == {"cat": 1}
    refused = ann.put(f"/vision/datasets/{dataset}/labels", json={"labels": [{"name": "dog"}]})
    assert refused.status_code == 422
    assert "must stay" in refused.json()["error"]["text"]


def test_films_are_played_by_ranges_and_give_frames(ann: httpx.Client) -> None:
    dataset = make(ann, "films")
    film = upload(ann, dataset, film_bytes(seconds=2, rate=5), "drive.mp4")["file"]
    assert (film["kind"], film["width"], film["height"]) == ("film", 64, 48)
    part = ann.get(f"/vision/files/{film['id']}/film", headers={"range": "bytes=0-99"})
    assert part.status_code == 206
    assert len(part.content) == 100
    last = ann.get(f"/vision/files/{film['id']}/film", headers={"range": "bytes=-10"})
    assert last.headers["content-range"] == f"bytes {film['bytes'] - 10}-{film['bytes'] - 1}/{film['bytes']}"
    none = ann.get(f"/vision/files/{film['id']}/film", headers={"range": "bytes=99999999-"})
    assert none.status_code == 416
    asked = ann.post(f"/vision/files/{film['id']}/frames", json={"every_s": 0.5})
    task = finished(ann, ok(asked, 202))
    assert task["state"] == "done"
    frames = ok(ann.get(f"/vision/datasets/{dataset}/files", params={"parent": film["id"]}))["files"]
    assert [round(one["time_s"], 1) for one in frames] == [0.0, 0.4, 1.0, 1.4]
    for place, left in ((0, 0), (3, 30)):
        shape = {"label": "car", "box": [left, 0, left + 10, 10], "track": "t"}
        ok(ann.put(f"/vision/files/{frames[place]['id']}/labels", json={"revision": 0, "shapes": [shape]}))
    assert ok(ann.post(f"/vision/files/{film['id']}/tracks", json={"track": "t"}))["changed"] == 2
    between = ok(ann.get(f"/vision/files/{frames[1]['id']}"))["shapes"]
    assert 0 < between[0]["box"][0] < 30
    assert ann.get(f"/vision/files/{film['id']}/thumbnail").status_code == 200


def test_augmented_and_cloned_data_sets(ann: httpx.Client) -> None:
    dataset = make(ann, "plain")
    file = upload(ann, dataset, encoded(), "a.jpg")["file"]["id"]
    shape = {"label": "a", "box": [0, 0, 8, 8]}
    ok(ann.put(f"/vision/files/{file}/labels", json={"revision": 0, "shapes": [shape]}))
    asked = {"name": "flipped", "steps": [{"kind": "flip_left_right"}], "keep": False}
    task = finished(ann, ok(ann.post(f"/vision/datasets/{dataset}/augment", json=asked), 202))
    made = ok(ann.get(f"/vision/datasets/{task['result']['dataset']}/files"))["files"]
    assert ok(ann.get(f"/vision/files/{made[0]['id']}"))["shapes"][0]["box"] == [24, 0, 32, 8]
    task = finished(ann, ok(ann.post(f"/vision/datasets/{dataset}/clone", json={"name": "copy"}), 202))
    assert ok(ann.get(f"/vision/datasets/{task['result']['dataset']}"))["counts"]["labelled"] == 1
    assert ann.post(f"/vision/datasets/{dataset}/clone", json={"name": "copy"}).status_code == 409


def test_tools_find_outlines(ann: httpx.Client) -> None:
    import numpy as np

    from weft.vision.pictures import encode_png

    pixels = np.full((60, 80, 3), 30, np.uint8)
    pixels[20:40, 30:60] = (220, 40, 40)
    dataset = make(ann, "outlines")
    file = upload(ann, dataset, encode_png(pixels), "a.png")["file"]["id"]
    for asked in ({"tool": "wand", "point": [40, 30]}, {"tool": "grabcut", "box": [24, 14, 66, 46]}):
        (ring,) = ok(ann.post(f"/vision/files/{file}/assist", json=asked))["polygons"]
        xs, ys = zip(*ring, strict=True)
        assert (min(xs), min(ys), max(xs), max(ys)) == pytest.approx((30, 20, 60, 40), abs=3)
    assert ann.post(f"/vision/files/{file}/assist", json={"tool": "wand"}).status_code == 422
    assert ann.post(f"/vision/files/{file}/assist", json={"tool": "model"}).status_code == 422


def test_changes_are_told_to_those_who_may_see_them(ann: httpx.Client, web: WebService) -> None:
    cat = web.user("cat")
    dataset = make(ann, "told")
    with ann.stream("GET", "/stream", params={"topics": "vision"}) as mine:
        lines = mine.iter_lines()
        while not next(lines).startswith("event: hello"):
            pass
        upload(ann, dataset, encoded(), "a.jpg")
        events = (json.loads(line[6:]) for line in lines if line.startswith("data: {"))
        assert next(event for event in events if event.get("dataset") == dataset)["topic"] == "vision:ann"
    assert cat.get("/stream", params={"topics": "vision:ann"}).status_code == 422


def test_addresses_that_are_not_public_are_not_fetched(ann: httpx.Client) -> None:
    dataset = make(ann, "fetched")
    asked = ann.post(f"/vision/datasets/{dataset}/import", json={"urls": ["http://127.0.0.1:1/a.jpg"]})
    task = finished(ann, ok(asked, 202))
    assert task["result"] == {"added": 0, "left_out": 1}
    assert "public" in task["problems"][0]


def test_pictures_of_models_are_shown_to_those_who_may_see_the_data_set(
    ann: httpx.Client, ben: httpx.Client, web: WebService, tmp_path: Path
) -> None:
    dataset = make(ann, "of a model")
    parts = web.running.state.jobs.trainings
    owner = int(web.database.ask(lambda c: c.scalar(sa.select(user.c.id).where(user.c.name == "ann"))) or 0)
    found = asyncio.run(parts.models.bring_in(model_zip(tmp_path), owner, "shown"))
    change = sa.update(vision_model).where(vision_model.c.model == "shown").values(dataset=dataset)
    web.database.submit(lambda c: c.execute(change)).result(30)
    examples = parts.models.folder("shown", 1) / "examples"
    examples.mkdir()
    (examples / "1.jpg").write_bytes(encoded())
    path = f"/vision/models/{found.reference}"
    for client, seen in ((ann, True), (ben, False), (web.admin(), True)):
        assert bool(ok(client.get(path))["examples"]) is seen
    assert ben.get(f"{path}/examples/1.jpg").status_code == 404
    assert "shown@1" in [one["reference"] for one in ok(ben.get("/vision/models"))["models"]]
    # A private service shows models of others only with their data sets.
    numbers = {"ann": owner, "ben": owner + 1000}
    assert asyncio.run(parts.seen([found], numbers["ann"], "ann")) == (found,)
    theirs = asyncio.run(parts.models.find("shown@1"))
    assert asyncio.run(parts.seen([theirs], numbers["ben"], "ben")) == ()
    ok(ann.patch(f"/vision/datasets/{dataset}", json={"shares": ["ben"]}))
    assert asyncio.run(parts.seen([theirs], numbers["ben"], "ben")) == (theirs,)
    assert ok(ben.get(path))["examples"]
