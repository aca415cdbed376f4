"""The whole loop by the API: pictures in, a training as a job, its model served, tried, and labelling the rest."""

from __future__ import annotations

import base64
import io
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from testing.jobs.web import ServiceThread, WebService
from testing.vision.made_films import film_bytes

from weft.vision.pictures.decoding import decode, encode_png

PATIENCE_S = 600.0
RED, BLUE = (200, 30, 30), (30, 30, 200)


def picture(colour: tuple[int, int, int], seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(-25, 25, (40, 40, 3))
    return encode_png(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8))


def ended(client: httpx.Client, number: int) -> Any:
    """Wait for the end of a job."""
    until = time.monotonic() + PATIENCE_S
    while True:
        job = client.get(f"/jobs/{number}").json()
        if job["state"] in ("completed", "failed", "stopped"):
            return job
        assert time.monotonic() < until, job
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_pictures_become_a_served_model_that_labels(tmp_path: Path) -> None:
    with ServiceThread(tmp_path, {}, runs_jobs=True) as service:
        tell(service, service.admin())


def tell(service: WebService, admin: httpx.Client) -> None:
    """Go once through the loop."""
    library = service.running.state.jobs.trainings.library
    imported_and_labelled(admin)
    made = library.dataset("colours")
    refused = admin.post("/vision/trainings", json={"dataset": "colours", "config": {"batchs": 4}})
    assert refused.status_code == 422
    assert "batchs" in refused.text
    asked = {
        "dataset": "colours",
        "task": "classification",
        "model": "small",
        "config": {"schedule": {"epochs": 4}, "batch": 4, "threads": 1, "first": False},
    }
    begun = admin.post("/vision/trainings", json=asked)
    assert begun.status_code == 201, begun.text
    number = begun.json()["job"]["id"]
    job = ended(admin, number)
    logs = admin.get(f"/jobs/{number}/logs").text
    assert job["state"] == "completed", (job["message"], logs[-3000:])
    training = admin.get(f"/vision/trainings/{number}").json()
    assert (training["model"], training["version"]) == ("colours@1", 1)
    assert training["score"] > 0.5
    model = admin.get("/vision/models/colours@1").json()
    assert set(model["classes"]) == {"red", "blue"}
    assert model["results"]["results"]["confusion"]
    assert (
        admin.patch("/vision/models/colours@1", json={"status": "production"}).json()["status"]
        == "production"
    )
    served = admin.post("/vision/models/colours@1/deploy", json={})
    assert served.status_code == 201, served.text
    answer = predicted(admin, served.json()["name"], picture(BLUE, 7))
    assert answer["classified"][0]["label"] == "blue"
    heat_and_collecting(admin, library, served.json()["name"])
    a_film_is_captioned(admin, library, made.id)
    a_client_of_powerai_sends_a_film(admin, library, served.json()["name"])
    a_custom_model_trains(admin)
    labelling = admin.post("/vision/datasets/colours/autolabel", json={"model": "colours", "confidence": 0.3})
    assert (labelling.status_code, labelling.json()["pictures"]) == (202, 2), labelling.text
    done = ended(admin, labelling.json()["job"]["id"])
    assert done["state"] == "completed", done["message"]
    files = {one.name: one for one in library.files(made.id).files}
    assert (files["100.png"].category, files["101.png"].category) == ("red", "blue")
    assert files["100.png"].state == "auto"
    assert files["0.png"].state == "labelled"
    admin.delete(f"/deployments/{served.json()['name']}")


def imported_and_labelled(admin: httpx.Client) -> None:
    """Send a zip of 14 pictures, and say of 12 what they show."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for seed in (*range(12), 100, 101):
            archive.writestr(f"{seed}.png", picture((RED, BLUE)[seed % 2], seed))
    assert admin.post("/vision/datasets", json={"name": "colours"}).status_code == 201
    task = admin.post(
        "/vision/datasets/colours/upload", params={"name": "colours.zip"}, content=packed.getvalue()
    ).json()["task"]
    until = time.monotonic() + PATIENCE_S
    while task["state"] in ("waiting", "running"):
        assert time.monotonic() < until, task
        time.sleep(0.05)
        task = admin.get(f"/vision/tasks/{task['id']}").json()
    assert (task["state"], task["result"]["added"]) == ("done", 14)
    for one in admin.get("/vision/datasets/colours/files").json()["files"]:
        seed = int(one["name"].removesuffix(".png"))
        if seed < 100:
            body = {"revision": one["revision"], "shapes": [], "category": ("red", "blue")[seed % 2]}
            assert admin.put(f"/vision/files/{one['id']}/labels", json=body).status_code == 200


def heat_and_collecting(admin: httpx.Client, library: Any, deployment: str) -> None:
    """A heat map lies over the whole picture; a picture that the model is unsure of is kept where asked."""
    wide = encode_png(np.full((60, 120, 3), RED, np.uint8))
    answer = predicted(admin, deployment, wide, heat="true")
    kind, _, encoded = answer["heatmap"].partition(",")
    assert kind == "data:image/png;base64"
    shown = decode(base64.b64decode(encoded))
    assert shown.shape == (60, 120, 3)
    refused = admin.post(
        f"/vision/deployments/{deployment}/predict", content=wide, params={"heat": "no such label"}
    )
    assert refused.status_code == 422
    assert "no such label" in refused.text
    assert "heatmap" not in predicted(admin, deployment, wide)
    doubtful = library.create("doubtful", user=None)
    sure = predicted(admin, deployment, wide, collect="doubtful", below=0.0)
    assert "collected" not in sure
    unsure = predicted(admin, deployment, wide, collect="doubtful", below=1.0)
    kept = library.file(unsure["collected"])
    assert (kept.dataset, kept.state) == (doubtful.id, "auto")
    assert kept.category == unsure["classified"][0]["label"]
    again = predicted(admin, deployment, wide, collect="doubtful", below=1.0)
    assert again["collected"] == unsure["collected"]
    assert library.dataset(doubtful.id).counts.pictures == 1


def a_custom_model_trains(admin: httpx.Client) -> None:
    """Somebody's own train.py runs as a job; what is no such zip is refused."""
    refused = admin.post("/vision/trainings/custom", params={"dataset": "colours"}, content=b"no zip")
    assert (refused.status_code, "must be a zip" in refused.text) == (422, True), refused.text
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("mine/train.py", CUSTOM_TRAIN)
        archive.writestr("mine/deploy.py", CUSTOM_DEPLOY)
    begun = admin.post(
        "/vision/trainings/custom",
        params={"dataset": "colours", "name": "mine", "params": '{"steps": 3}'},
        content=packed.getvalue(),
    )
    assert begun.status_code == 201, begun.text
    assert (begun.json()["network"], begun.json()["model"]) == ("custom", None)  # no model yet
    number = begun.json()["job"]["id"]
    done = ended(admin, number)
    assert done["state"] == "completed", (done["message"], admin.get(f"/jobs/{number}/logs").text[-2000:])
    assert "12 labelled pictures, process of its own: True" in admin.get(f"/jobs/{number}/logs").text
    shown = admin.get(f"/vision/trainings/{number}").json()
    assert (shown["model"], shown["score"], shown["task"]) == ("mine@1", 0.75, "classification")
    served = admin.post("/vision/models/mine@1/deploy", json={})
    assert served.status_code == 201, served.text
    name = served.json()["name"]
    answer = predicted(admin, name, picture(BLUE, 7))
    assert answer["classified"] == [{"label": "blue", "confidence": 0.5}]
    home = admin.base_url.copy_with(path="/api")
    (webapi,) = [one for one in admin.get(f"{home}/webapis").json() if one["name"] == name]
    asked = admin.post(
        f"{home}/dlapis/{webapi['_id']}",
        files={"files": ("a.png", picture(RED, 8))},
        data={"containHeatMap": "true"},
    ).json()
    assert (asked["classified"][0]["label"], asked["heatmap"]) == ("red", "seen")
    packed_model = admin.get(f"{home}/trained-models/{webapi['trained_model_id']}/export").content
    files = {"files": ("again.zip", packed_model, "application/zip")}
    again = admin.post(f"{home}/trained-models/import", files=files, data={"name": "again"})
    assert again.status_code == 201, again.text
    assert (again.json()["nn_arch"], again.json()["name"]) == ("custom", "again")
    labelling = admin.post("/vision/datasets/colours/autolabel", json={"model": "mine", "confidence": 0.3})
    assert ended(admin, labelling.json()["job"]["id"])["state"] == "completed"
    admin.delete(f"/deployments/{name}")


CUSTOM_TRAIN = """
import os
import sys
from train_interface import TrainCallback

class MyTrain(TrainCallback):
    def onPreprocessing(self, labels, images, workspace_path, params):
        print(f"{len(images)} labelled pictures, process of its own: {'torch' not in sys.modules}")
        self.steps, self.labels = params["steps"], labels

    def onTraining(self, monitor_handler):
        for step in range(1, self.steps + 1):
            monitor_handler.updateTrainMetrics(step, self.steps, 1 / step, step)
        monitor_handler.updateTestMetrics(self.steps, 0.75, 0.5, self.steps)

    def onCompleted(self, model_path):
        with open(os.path.join(model_path, "weights"), "w") as file:
            file.write("done")
"""


CUSTOM_DEPLOY = """
import cv2

class MyDeploy:
    def onModelLoading(self, model_path, labels, workspace_path):
        assert open(model_path + "/weights").read() == "done"
        self.names = set(labels.values())

    def onInference(self, image_url, params):
        blue, _, red = cv2.imread(image_url).mean((0, 1))
        name = "red" if red > blue else "blue"
        assert name in self.names
        found = {"label": name, "confidence": 0.5}
        return found | ({"heatmap": "seen"} if params["heatmap"] == "true" else {})
"""


def a_film_is_captioned(admin: httpx.Client, library: Any, dataset: str) -> None:
    """A trained model looks at a film as a job; the film that comes out plays by ranges."""
    import av

    path = library.blobs.draft(".mp4")
    with av.open(str(path), "w") as film:
        stream: Any = film.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(6):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), BLUE, np.uint8), format="rgb24")
            film.mux(stream.encode(frame))
        film.mux(stream.encode())
    known = library.add_film(dataset, path, "blue.mp4")
    begun = admin.post(f"/vision/files/{known.id}/inferences", json={"model": "colours", "every": 2})
    assert begun.status_code == 202, begun.text
    number = begun.json()["job"]["id"]
    done = ended(admin, number)
    assert done["state"] == "completed", (done["message"], admin.get(f"/jobs/{number}/logs").text[-2000:])
    (listed,) = admin.get("/vision/inferences").json()["inferences"]
    assert (listed["film"], listed["model"]) == (known.id, "colours@1")
    found = admin.get(f"/vision/inferences/{number}").json()
    assert len(found["frames"]) == 3
    assert found["frames"][0]["classified"][0]["label"] == "blue"
    played = admin.get(f"/vision/inferences/{number}/film", headers={"range": "bytes=0-99"})
    assert (played.status_code, len(played.content)) == (206, 100)
    assert played.content[4:8] == b"ftyp"
    picture_id = next(one.id for one in library.files(dataset).files if one.kind == "picture")
    refused = admin.post(f"/vision/files/{picture_id}/inferences", json={"model": "colours"})
    assert refused.status_code == 422
    assert "must be a film" in refused.text


def a_client_of_powerai_sends_a_film(admin: httpx.Client, library: Any, deployment: str) -> None:
    """A film that is sent to a deployed model is answered later, under /api/inferences."""
    home = admin.base_url.copy_with(path="/api")
    sent = admin.post(f"{home}/dlapis/{deployment}", files={"files": ("drive.mp4", film_bytes())})
    assert sent.status_code == 202, sent.text
    identity = sent.json()["inference_id"]
    assert ended(admin, int(identity[-12:], 16))["state"] == "completed"
    found = admin.get(f"{home}/inferences/{identity}").json()
    assert (found["status"], found["name"], found["percent_complete"]) == ("success", "drive.mp4", 100)
    assert found["frames"][0]["classified"][0]["label"] in ("red", "blue")
    assert found["_id"] in [one["_id"] for one in admin.get(f"{home}/inferences").json()]
    assert admin.get(f"{home.copy_with(path=found['video_out'])}").content[4:8] == b"ftyp"
    broken = admin.post(f"{home}/dlapis/{deployment}", files={"files": ("drive.mp4", b"")})
    assert (broken.status_code, broken.json()["result"]) == (400, "fail"), broken.text
    assert admin.delete(f"{home}/inferences/{identity}").status_code == 200
    assert admin.get(f"{home}/inferences/{identity}").status_code == 404


def predicted(client: httpx.Client, name: str, data: bytes, **asked: Any) -> Any:
    """Show a picture to a deployment as soon as it answers."""
    until = time.monotonic() + PATIENCE_S
    while True:
        answer = client.post(f"/vision/deployments/{name}/predict", content=data, params=asked)
        if answer.status_code == 200:
            return answer.json()
        assert answer.status_code == 503, answer.text
        assert time.monotonic() < until, answer.text
        time.sleep(0.3)
