"""PowerAI Vision's REST as its clients send it: X-Auth-Token, trailing slashes, bodies of GET, forms."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from testing.jobs.web import ServiceThread, WebService
from testing.vision.made_models import model_zip

from weft.jobs.accounts.passwords import hash_password
from weft.jobs.accounts.users import add_user
from weft.jobs.doors.access import DoorError
from weft.jobs.doors.powerai.base import _sorted_by, share
from weft.jobs.doors.powerai.identities import library_id, named_id, number_of, numbered_id, plain_id
from weft.jobs.doors.powerai.strategies import training_config
from weft.jobs.vision.predictions import shaped
from weft.vision.pictures.decoding import encode_png

Json = Any


def test_ids_lead_back_to_numbers_and_names() -> None:
    assert number_of("dltask", numbered_id("dltask", 17)) == 17
    assert number_of("dltask", "17") == 17
    with pytest.raises(DoorError, match="Could not find dltask"):
        number_of("dltask", numbered_id("project", 17))
    assert plain_id(library_id("0123456789abcdef0123456789abcdef")) == "0123456789abcdef0123456789abcdef"
    assert plain_id("flowers") == "flowers"
    assert named_id("tag", "a", "b") != named_id("tag", "ab", "")


def test_a_strategy_becomes_a_configuration() -> None:
    strategy = {"max_iter": "1000", "learning_rate": 0.01, "weight_decay": "0.0005", "momentum": 0.9}
    task, network, config = training_config(
        {"usage": "cod", "nn_arch": "tiny_yolo_v3", "strategy": strategy}, 800
    )
    assert (task, network) == ("detection", "tiny_yolo_v3")
    assert config["schedule"] == {"epochs": 20.0}
    assert config["optimizer"] == {"name": "sgd", "lr": 0.01, "weight_decay": 0.0005, "momentum": 0.9}
    assert training_config({"nn_arch": "frcnn_mrcnn"}, 10)[0] == "segmentation"
    assert training_config({}, 10) == (None, None, {})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"usage": "other"}, "usage must be"),
        ({"strategy": []}, None),
        ({"strategy": "x"}, "strategy must be an object"),
        ({"strategy": {"max_iter": "many"}}, r"strategy.max_iter must be a number from 1"),
        ({"strategy": {"momentum": 2}}, r"strategy.momentum must be a number from 0 to 0.9999"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(body: Json, said: str | None) -> None:
    if said is None:
        assert training_config(body, 10)[2] == {}
        return
    with pytest.raises(DoorError, match=said):
        training_config(body, 10)


def test_numbers_texts_and_nothing_are_in_order() -> None:
    assert sorted(["b", None, 3, "A", 1.5], key=_sorted_by) == [1.5, 3, "A", "b", None]
    assert (share("", "x", 0.5), share("80", "x", 0.5), share("0.3", "x", 0.5)) == (0.5, 0.8, 0.3)
    with pytest.raises(DoorError, match="x must be a number from 0 to 1, got '-1'"):
        share("-1", "x", 0.5)


def test_answers_of_servers_have_one_shape() -> None:
    box = {"label": "a", "confidence": 0.5, "xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}
    assert shaped([box]) == {"detections": [box]}
    assert shaped([{"label": "a", "confidence": 0.5}]) == {"classified": [{"label": "a", "confidence": 0.5}]}
    assert shaped([]) == {"detections": []}
    assert shaped({"y": [1.0]}) == {"outputs": {"y": [1.0]}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebService]:
    with ServiceThread(tmp_path_factory.mktemp("powerai"), {}) as running:
        running.write(lambda c: add_user(c, "ann", "member", hash_password("correct horse")))
        running.write(lambda c: add_user(c, "bob", "member", hash_password("battery staple")))
        yield running


def client(service: WebService, name: str, password: str) -> httpx.Client:
    """A client that has logged in as IBM's do."""
    made = httpx.Client(base_url=f"{service.url}/api", timeout=60)
    service.clients.append(made)
    body = {"grant_type": "password", "username": name, "password": password}
    answer = made.post("/tokens", json=body)
    assert answer.status_code == 200, answer.text
    made.headers["X-Auth-Token"] = answer.json()["token"]
    return made


@pytest.fixture(scope="module")
def ann(service: WebService) -> httpx.Client:
    found = client(service, "ann", "correct horse")
    dataset, (first, _) = made(found, "first of all")
    found.get(
        f"/datasets/{dataset}/files/{first}/thumbnail"
    )  # the thread that sends files stays with the service
    return found


def picture(shade: int) -> bytes:
    return encode_png(np.full((30, 40, 3), shade, np.uint8))


def made(ann: httpx.Client, name: str, shades: tuple[int, ...] = (10, 200)) -> tuple[str, list[str]]:
    """A data set with pictures; return its id and theirs."""
    dataset = ann.post("/datasets", json={"name": name}).json()["dataset_id"]
    files = [("files", (f"{shade}.png", picture(shade), "image/png")) for shade in shades]
    answer = ann.post(f"/datasets/{dataset}/files", files=files)
    assert answer.status_code == 201, answer.text
    return dataset, answer.json()["file_ids"]


def test_nobody_comes_in_without_a_token(service: WebService) -> None:
    stranger = httpx.get(f"{service.url}/api/datasets")
    assert stranger.status_code == 401
    assert stranger.json()["result"] == "fail"
    wrong = httpx.post(f"{service.url}/api/tokens", json={"username": "ann", "password": "wrong"})
    assert wrong.status_code == 401
    assert "token" not in wrong.json()


def test_keys_are_made_and_revoked(service: WebService, ann: httpx.Client) -> None:
    key = ann.post("/api-keys").json()["api_key"]
    by_key = httpx.get(f"{service.url}/api/datasets/", headers={"X-Auth-Token": key})
    assert by_key.status_code == 200
    assert ann.get("/api-keys").json()["api_key"] == "*" * 8
    assert ann.delete("/api-keys").json()["result"] == "success"
    assert httpx.get(f"{service.url}/api/datasets/", headers={"X-Auth-Token": key}).status_code == 401
    assert ann.get("/system").json()["system_name"] == "weft"
    assert ann.get("/version-info").json()["product"] == "weft"


def test_pictures_are_uploaded_labelled_and_categorised(ann: httpx.Client) -> None:
    dataset, (first, second) = made(ann, "flowers")
    shown = ann.get(f"/datasets/{dataset}").json()
    assert (shown["name"], shown["total_file_count"], shown["owner"]) == ("flowers", 2, "ann")
    assert [one["original_file_name"] for one in ann.get(f"/datasets/{dataset}/files").json()] == [
        "10.png",
        "200.png",
    ]
    assert ann.get(f"/datasets/{dataset}/files?skip=1&limit=1").json()[0]["_id"] == second
    tag = ann.post(f"/datasets/{dataset}/tags", json={"name": "rose"}).json()["dataset_tag_id"]
    box = {"xmin": 1, "ymin": 2, "xmax": 20, "ymax": 25}
    label = ann.post(f"/datasets/{dataset}/files/{first}/object-labels", json={"tag_id": tag, "bndbox": box})
    assert label.status_code == 201, label.text
    number = label.json()["_id"]
    (kept,) = ann.get(f"/datasets/{dataset}/files/{first}/object-labels").json()
    assert (kept["name"], kept["bndbox"], kept["generate_type"]) == ("rose", box, "manual")
    moved = {"bndbox": {**box, "xmax": 30}}
    changed = ann.put(f"/datasets/{dataset}/files/{first}/object-labels/{number}", json=moved).json()
    assert (changed["bndbox"]["xmax"], changed["_id"]) == (30, number)
    assert ann.get(f"/datasets/{dataset}/files/{first}").json()["tag_list"][0]["tag_count"] == 1
    category = ann.post(f"/datasets/{dataset}/categories", json={"name": "red"}).json()["_id"]
    body = {"action": "change_category", "target_category_id": category}
    assert ann.request("GET", f"/datasets/{dataset}/files/{second}/action", json=body).status_code == 200
    assert ann.get(f"/datasets/{dataset}/files/{second}").json()["category_name"] == "red"
    (red,) = ann.get(f"/datasets/{dataset}/files", params={"category_id": category}).json()
    assert red["_id"] == second
    renamed = ann.post(f"/datasets/{dataset}/tags/{tag}/action", json={"action": "update", "name": "tulip"})
    assert renamed.status_code == 200
    assert [one["name"] for one in ann.get(f"/datasets/{dataset}/tags").json()] == ["tulip"]
    assert (
        ann.post(f"/datasets/{dataset}/files/{first}/user-metadata", json={"place": "garden"}).status_code
        == 200
    )
    assert ann.get(f"/datasets/{dataset}/files/{first}/user-metadata/place").json() == {"place": "garden"}
    assert ann.delete(f"/datasets/{dataset}/files/{first}/object-labels/{number}").status_code == 200
    assert ann.get(f"/datasets/{dataset}/files/{first}/labels").json() == []
    thumbnail = ann.get(f"/datasets/{dataset}/files/{first}/thumbnail")
    assert thumbnail.content[:2] == b"\xff\xd8"


def test_data_sets_are_copied_exported_and_removed(ann: httpx.Client) -> None:
    dataset, (first, _) = made(ann, "leaves", (30, 90))
    other, _ = made(ann, "others", (120,))
    done = ann.post(f"/datasets/{dataset}/files/copy", json={"target_dataset_id": other, "files": [first]})
    assert (done.status_code, done.json()["count"]) == (200, 1)
    assert ann.get(f"/datasets/{other}").json()["total_file_count"] == 2
    packed = ann.get(f"/datasets/{dataset}/export")
    names = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    assert any(name.endswith("prop.json") for name in names)
    clone = ann.post(f"/datasets/{dataset}/action", json={"action": "clone", "name": "leaves 2"}).json()
    assert ann.get(f"/datasets/{clone['dataset_id']}").json()["total_file_count"] == 2
    assert ann.delete(f"/datasets/{clone['dataset_id']}").json()["result"] == "success"
    gone = ann.get(f"/datasets/{clone['dataset_id']}")
    assert (gone.status_code, gone.json()["status"], gone.json()["type"]) == (
        404,
        "Not Found",
        "NotFoundException",
    )
    assert ann.get("/datasets?sortby=name DESC").json()[0]["name"] >= "leaves"


def test_data_sets_of_others_are_not_there(service: WebService, ann: httpx.Client) -> None:
    dataset, (first, _) = made(ann, "secret")
    bob = client(service, "bob", "battery staple")
    assert bob.get(f"/datasets/{dataset}").status_code == 404
    assert bob.get(f"/datasets/{dataset}/files/{first}").status_code == 404
    assert bob.delete(f"/datasets/{dataset}").status_code == 404
    assert "secret" not in [one["name"] for one in bob.get("/datasets").json()]


def test_objects_keys_and_values_of_a_whole_data_set(ann: httpx.Client) -> None:
    dataset, (first, second) = made(ann, "whole", (11, 22))
    box = {"xmin": 1, "ymin": 2, "xmax": 20, "ymax": 20}
    added = ann.post(
        f"/datasets/{dataset}/object-labels", json={"file_id": first, "name": "cat", "bndbox": box}
    )
    assert added.status_code == 201, added.text
    ann.post(f"/datasets/{dataset}/files/{second}/object-labels", json={"name": "dog", "bndbox": box})
    found = {one["name"]: one for one in ann.get(f"/datasets/{dataset}/object-labels").json()}
    assert (found["cat"]["file_id"], found["dog"]["file_id"]) == (first, second)
    one = f"/datasets/{dataset}/object-labels/{found['dog']['_id']}"
    assert ann.get(one).json()["bndbox"] == box
    assert ann.put(one, json={"name": "hound"}).json()["name"] == "hound"
    assert (
        ann.delete(f"/datasets/{dataset}/object-labels/{found['cat']['_id']}").json()["result"] == "success"
    )
    assert [each["name"] for each in ann.get(f"/datasets/{dataset}/object-labels").json()] == ["hound"]
    assert ann.get(one.replace("object-labels/", "object-labels/0")).status_code == 404
    for file, values in ((first, {"ort": "=1+1", "tag": "7"}), (second, {"ort": "Ulm"})):
        assert ann.post(f"/datasets/{dataset}/files/{file}/user-metadata", json=values).status_code == 200
    keys = f"/datasets/{dataset}/files/user-keys"
    assert ann.get(keys).json() == [{"name": "ort", "file_count": 2}, {"name": "tag", "file_count": 1}]
    assert ann.put(f"{keys}/ort", json={"name": "place"}).json()["count"] == 2
    assert ann.delete(f"{keys}/tag").json()["count"] == 1
    assert ann.delete(f"{keys}/tag").status_code == 404
    rows = ann.get(f"/datasets/{dataset}/files/user-metadata", params={"query": "place == 'Ulm'"}).json()
    assert [row["place"] for row in rows] == ["Ulm"]
    table = ann.get(
        f"/datasets/{dataset}/files/user-metadata", params={"format": "csv", "keys": "place"}
    ).text
    assert table.splitlines()[1].endswith(",10.png,'=1+1") or "'=1+1" in table  # no formula of a spreadsheet


def test_custom_models_are_kept_for_their_owner(service: WebService, ann: httpx.Client) -> None:
    dataset, _ = made(ann, "for custom", (33,))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("mine/train.py", "")
        archive.writestr("mine/deploy.py", "")
    files = {"files": ("mine.zip", packed.getvalue(), "application/zip")}
    refused = ann.post("/dnn-scripts", files={"files": ("x.zip", b"no zip", "application/zip")})
    assert (refused.status_code, "must be a zip" in refused.json()["fault"]) == (400, True)
    kept = ann.post("/dnn-scripts/", files=files, data={"name": "own"})
    assert kept.status_code == 201, kept.text
    script = kept.json()["dnnscript_id"]
    assert [one["name"] for one in ann.get("/dnn-scripts").json()] == ["own"]
    assert ann.put(f"/dnn-scripts/{script}", json={"name": "mine"}).json()["name"] == "mine"
    assert ann.get(f"/dnn-scripts/{script}/download").content == packed.getvalue()
    begun = ann.post("/dltasks", json={"name": "t", "dataset_id": dataset, "userdnn_id": script})
    assert begun.status_code == 202, begun.text
    assert ann.get(f"/dltasks/{begun.json()['task_id']}").json()["nn_arch"] == "custom"
    bob = client(service, "bob", "battery staple")
    assert bob.get("/dnn-scripts").json() == []
    assert bob.get(f"/dnn-scripts/{script}").status_code == 404
    assert (
        bob.post("/dltasks", json={"name": "t", "dataset_id": dataset, "userdnn_id": script}).status_code
        == 404
    )
    assert ann.delete(f"/dnn-scripts/{script}").status_code == 200
    assert ann.get(f"/dnn-scripts/{script}").status_code == 404


def test_a_model_is_imported_and_exported_again(ann: httpx.Client, tmp_path: Path) -> None:
    packed = model_zip(tmp_path)
    files = {"files": ("flowers.zip", packed.read_bytes(), "application/zip")}
    done = ann.post("/trained-models/import", files=files)
    assert done.status_code == 201, done.text
    found = ann.get(f"/trained-models/{done.json()['trained_model_id']}").json()
    assert (found["name"], found["usage"], found["accuracy"]) == ("flowers", "cic", "0.75")
    assert [one["name"] for one in found["categories"]] == ["red", "blue"]
    again = ann.get(f"/trained-models/{found['_id']}/export").content
    assert {"model.onnx", "config.json", "results.json"} <= set(zipfile.ZipFile(io.BytesIO(again)).namelist())
    for wrong in (b"no zip", packed.read_bytes()[:-40]):
        answer = ann.post("/trained-models/import", files={"files": ("x.zip", wrong, "application/zip")})
        assert (answer.status_code, answer.json()["result"]) == (400, "fail")


def test_projects_are_kept(ann: httpx.Client) -> None:
    made = ann.post("/projects", json={"name": "Garden", "enforce_pwf": True})
    assert made.status_code == 201, made.text
    number = made.json()["project_group_id"]
    assert ann.get(f"/projects/{number}").json()["enforce_pwf"] is True
    assert ann.put(f"/projects/{number}", json={"auto_deploy": "true"}).json()["auto_deploy"] is True
    assert ann.get(f"/projects/{number}/models/latest").status_code == 404
    assert ann.delete(f"/projects/{number}").status_code == 200
    assert ann.get(f"/projects/{number}").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/datasets", {}, 400),
        ("POST", "/datasets", {"name": 7}, 400),
        ("GET", "/datasets/nothing", None, 404),
        ("GET", "/dltasks/nothing", None, 404),
        ("GET", "/trained-models/nothing/", None, 404),
        ("GET", "/webapis/nothing", None, 404),
        ("POST", "/webapis/", {"trained_model_id": "nothing"}, 404),
        ("GET", "/projects/nothing", None, 404),
        ("GET", "/bgtasks/nothing", None, 404),
        ("POST", "/datasets/import", None, 400),
    ],
)
def test_bad_requests_are_refused_in_ibms_words(
    ann: httpx.Client, method: str, path: str, body: Json, status: int
) -> None:
    answer = ann.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["result"] == "fail"
    assert answer.json()["fault"]


def test_lists_are_there_with_a_slash_and_without(ann: httpx.Client) -> None:
    for path in ("/dltasks", "/trained-models", "/webapis", "/bgtasks", "/projects", "/datasets"):
        assert ann.get(path).status_code == ann.get(f"{path}/").status_code == 200


def test_a_file_that_is_no_picture_is_refused(ann: httpx.Client, tmp_path: Path) -> None:
    dataset, _ = made(ann, "wrong files")
    answer = ann.post(
        f"/datasets/{dataset}/files", files=[("files", ("x.png", b"not a picture", "image/png"))]
    )
    assert answer.status_code == 400
    assert ann.get(f"/datasets/{dataset}").json()["total_file_count"] == 2
