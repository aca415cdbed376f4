"""Custom models in IBM's form: what their code gets, what it may answer, and what is served."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from weft.errors import ModelError, UsageError
from weft.serve.store import Store
from weft.vision.custom.answers import custom_prediction, shown
from weft.vision.custom.contract import MonitorHandler
from weft.vision.custom.predictor import CustomPredictor, open_predictor
from weft.vision.custom.running import CustomModel, check_custom, train_custom
from weft.vision.custom.serving import CustomServer
from weft.vision.opening import open_data

# As IBM's samples do it: class indices by name, categories by path, params of text, numbers of NumPy.
TRAIN = """
import json, os
import numpy as np
from PIL import Image
from train_interface import TrainCallback

class MyTrain(TrainCallback):
    def __init__(self):
        self.side = (8, 8)

    def onPreprocessing(self, labels, images, workspace_path, params):
        self.params, self.names = params, labels
        paths, names = zip(*images.items())
        self.pixels = np.array([np.array(Image.open(path).convert("RGB").resize(self.side)) for path in paths])
        self.numbers = np.array([labels[name] for name in names])

    def onTraining(self, monitor_handler):
        steps = int(self.params["max_iter"])
        for step in range(1, steps + 1):
            monitor_handler.updateTrainMetrics(step, steps, np.float32(1 / step), step)
        monitor_handler.updateTestMetrics(steps, np.float64(0.75), 0.4, steps)
        self.means = [self.pixels[self.numbers == one].mean((0, 1, 2)) for one in range(len(self.names))]

    def onCompleted(self, model_path):
        np.save(os.path.join(model_path, "means.npy"), np.array(self.means))

    def onFailed(self, train_status, e, tb_message):
        print("failed", train_status)
"""
DEPLOY = """
import os
import helper
import numpy as np
from PIL import Image
from deploy_interface import DeployCallback

class MyDeploy(DeployCallback):
    def onModelLoading(self, model_path, labels, workspace_path):
        self.labels_dict = labels
        self.means = np.load(os.path.join(model_path, "means.npy"))

    def onTest(self):
        return "This is Houston"

    def onInference(self, image_url, params):
        mean = helper.mean(image_url)
        if mean.sum() < 9:
            raise ValueError("too dark")
        if mean.min() > 250:
            os._exit(3)
        found = np.argmin(((self.means - mean) ** 2).sum(1))
        return {"label": self.labels_dict[found], "confidence": np.float32(0.5), "heatmap": params["heatmap"]}

    def onFailed(self, deploy_status, e, tb_message):
        raise RuntimeError("hears no failure")
"""
HELPER = """
import numpy as np
from PIL import Image

def mean(path):
    return np.array(Image.open(path).convert("RGB")).mean((0, 1))
"""
DETECTOR = """
import os
from train_interface import TrainCallback

class MyTrain(TrainCallback):
    def onPreprocessing(self, labels, images, workspace_path, params):
        rows = []
        for image in images:
            assert os.path.exists(image.filename) and len(image.size) == 3
            for each in image.objects:
                rows.append([labels[each.label] + 1] + each.bbox)
        self.rows = rows

    def onTraining(self, monitor_handler):
        monitor_handler.updateTrainMetrics(1, 1, 0.5, 0.25, 1)
        monitor_handler.updateTestMetrics(0.8)

    def onCompleted(self, model_path):
        with open(os.path.join(model_path, "rows"), "w") as file:
            file.write(repr(self.rows))
"""
BOXES = """
import numpy as np

class MyDeploy:
    def onModelLoading(self, model_path, labels, workspace_path):
        self.name = labels[0]

    def onInference(self, image_url, params):
        sides = np.array([2, 3, 900, 20])
        return [{"confidence": np.float64(0.9), "label": self.name, "xmin": sides[0], "ymin": sides[1],
                 "xmax": sides[2], "ymax": sides[3]},
                {"confidence": 0.1, "label": self.name, "xmin": 0, "ymin": 0, "xmax": 5, "ymax": 5}]
"""
FORM = {"content-type": "multipart/form-data; boundary=b"}
EMPTY_FORM = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--b--\r\n'


def packed(path: Path, files: dict[str, str], folder: str = "mine/") -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(folder + name, text)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained classifier of somebody's own."""
    home = tmp_path_factory.mktemp("custom")
    archive = packed(home / "mine.zip", {"train.py": TRAIN, "deploy.py": DEPLOY, "helper.py": HELPER})
    told: list[Any] = []
    results = train_custom(
        archive,
        open_data(labelled(home / "data")),
        home / "model",
        params={"max_iter": "2"},
        report=told.append,
    )
    assert results["task"] == "classification"
    assert results["score"] == {"name": "accuracy", "value": 0.75}
    assert [one.get("loss") for one in told] == [1.0, 0.5, None]
    return home / "model"


def labelled(folder: Path) -> Path:
    """Class folders of two colours."""
    for name, colour in (("red", (200, 40, 30)), ("blue", (30, 40, 200))):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((20, 30, 3), colour, np.uint8) + np.uint8(number)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def picture(colour: tuple[int, int, int]) -> bytes:
    into = io.BytesIO()
    Image.fromarray(np.full((20, 30, 3), colour, np.uint8)).save(into, "PNG")
    return into.getvalue()


def test_a_classifier_is_asked_as_ibms_samples_answer(model: Path, tmp_path: Path) -> None:
    (tmp_path / "new.png").write_bytes(picture((190, 50, 40)))
    with CustomModel(model) as running:
        assert running.test == "This is Houston"
        found = running.predict(tmp_path / "new.png", {"heatmap": "false"})
        assert found == {"label": "red", "confidence": 0.5, "heatmap": "false"}
    for folder in (model, unpacked_alone(model, tmp_path / "alone")):
        with CustomPredictor(folder) as predictor:
            assert set(predictor.classes) == {"red", "blue"}
            (answer,) = predictor.predict([np.full((9, 9, 3), (20, 30, 190), np.uint8)])
            assert answer.scores == (("blue", 0.5),)
    with closing(open_predictor(model)) as opened:
        assert isinstance(opened, CustomPredictor)


def unpacked_alone(model: Path, folder: Path) -> Path:
    """Return a folder with nothing but the packed model."""
    folder.mkdir()
    (folder / "custom.zip").write_bytes((model / "custom.zip").read_bytes())
    return folder


def test_a_served_custom_model_survives_its_own_code(model: Path) -> None:
    with TestClient(CustomServer(model).app()) as client:
        red = picture((190, 50, 40))
        assert client.get("/test").json() == {"result": "success", "test": "This is Houston"}
        assert client.post("/detect_upload", content=red).json()["label"] == "red"
        asked = client.post("/classify_upload", files={"files": ("a.png", red)})
        assert asked.json()["confidence"] == 0.5
        dark = client.post("/detect_upload", content=picture((0, 0, 0)))
        assert (dark.status_code, "too dark" in dark.json()["error"]) == (500, True)
        ended = client.post("/detect_upload", content=picture((255, 255, 255)))
        assert (ended.status_code, "exit code 3" in ended.json()["error"]) == (500, True)
        again = client.post("/v2/models/mine/picture?confidence=0.2&top=3&heat=true", content=red)
        assert again.json() == {
            "classified": [{"label": "red", "confidence": 0.5}],
            "heatmap": "true",
        }
        assert client.post("/detect_upload", content=b"text").status_code == 400
        assert "a file" in client.post("/detect_upload", content=EMPTY_FORM, headers=FORM).json()["error"]
        assert "must be allowed" in client.get("/detect_url?url=http://example.com/x.png").json()["error"]
        assert "weft_requests_total 8" in client.get("/metrics").text


def test_a_packed_model_is_served_from_standard_input(model: Path, tmp_path: Path) -> None:
    """As a jobs service starts it: the address comes over a descriptor, and SIGTERM ends it."""
    ready = tmp_path / "ready.json"
    with (model / "custom.zip").open("rb") as given, ready.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "weft.vision.custom.serving", str(told.fileno())],
            stdin=given,
            pass_fds=(told.fileno(),),
        )
    try:
        until = time.monotonic() + 60
        while not ready.read_text() and time.monotonic() < until and process.poll() is None:
            time.sleep(0.1)
        address = json.loads(ready.read_text())["http"]
        answer = httpx.post(f"{address}/classify_upload", content=picture((190, 50, 40)))
        assert answer.json()["label"] == "red"
    finally:
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM or process.returncode == 0


def test_a_detector_gets_annotations_and_answers_boxes(tmp_path: Path) -> None:
    (tmp_path / "data/JPEGImages").mkdir(parents=True)
    (tmp_path / "data/Annotations").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned: upright it is 20 wide and 30 high
    Image.new("RGB", (30, 20), (9, 99, 9)).save(tmp_path / "data/JPEGImages/a.jpg", exif=exif.tobytes())
    (tmp_path / "data/Annotations/a.xml").write_text(
        "<annotation><filename>a.jpg</filename><size><width>20</width><height>30</height></size><object>"
        "<name>cat</name><bndbox><xmin>3</xmin><ymin>5</ymin><xmax>10</xmax><ymax>12</ymax></bndbox></object>"
        "</annotation>"
    )
    archive = packed(tmp_path / "mine.zip", {"train.py": DETECTOR, "deploy.py": BOXES}, folder="")
    told: list[Any] = []
    results = train_custom(archive, open_data(tmp_path / "data"), tmp_path / "model", report=told.append)
    assert (results["task"], results["score"]["value"]) == ("detection", 0.8)
    assert told[0]["loss"] == 0.75
    assert (tmp_path / "model/model/rows").read_text() == repr([[1, 3, 5, 10, 12]])
    with CustomPredictor(tmp_path / "model") as predictor:
        (found,) = predictor.predict([tmp_path / "data/JPEGImages/a.jpg"])
    assert [(one.label, one.box) for one in found.shapes] == [("cat", (2, 3, 20, 20))]


def test_a_packed_model_is_kept_in_the_store(model: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    entry = store.push(model / "custom.zip", "mine")
    assert (entry.is_custom, entry.card.task, set(entry.card.labels)) == (True, "classify", {"red", "blue"})
    assert store.verify("mine@1").sha256 == entry.sha256
    (tmp_path / "out").mkdir()
    assert store.pull("mine", tmp_path / "out").name == "mine.zip"
    packed(tmp_path / "other.zip", {"train.py": ""})
    with pytest.raises(ModelError, match="must be a trained custom model"):
        store.push(tmp_path / "other.zip", "mine")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"train.py": "import nothing_of_this_name"}, "exit code 1"),
        ({"train.py": TRAIN.replace("int(self.params", "int('x' or self.params")}, "exit code 1"),
    ],
)
def test_a_training_that_fails_says_so(tmp_path: Path, broken: dict[str, str], said: str) -> None:
    version = open_data(labelled(tmp_path / "data"))
    archive = packed(tmp_path / "mine.zip", {"deploy.py": DEPLOY, **broken})
    with pytest.raises(ModelError, match=said):
        train_custom(archive, version, tmp_path / "model")
    with pytest.raises(UsageError, match="folder of a custom model"):
        CustomModel(tmp_path / "model")


def test_a_zip_without_both_files_is_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path / "mine.zip", {"train.py": TRAIN})
    with pytest.raises(UsageError, match="in one folder"):
        check_custom(archive.read_bytes())
    with pytest.raises(UsageError, match="in one folder"):
        train_custom(archive, open_data(labelled(tmp_path / "data")), tmp_path / "other")


def test_a_folder_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    about = {"task": "classification", "code": os.path.relpath("/usr", tmp_path), "classes": []}
    (tmp_path / "custom.json").write_text(json.dumps(about))
    with pytest.raises(UsageError, match="its code is not in it"):
        CustomModel(tmp_path)


def test_metrics_are_told_by_place_or_by_name() -> None:
    told: list[Any] = []
    handler = MonitorHandler(told.append)
    handler.updateTrainMetrics(current_iter=1, max_iter=4, loss=0.5, epoch=2)
    handler.updateTestMetrics(1, 0.5, loss_value=0.4, epoch=2)
    assert (told[0]["total"], told[0]["epoch"], told[1]["val_loss"]) == (4, 2.0, 0.4)
    with pytest.raises(TypeError, match="4 or 5 numbers, got 2"):
        handler.updateTrainMetrics(1, 2)


@pytest.mark.parametrize(
    ("answer", "scores", "boxes"),
    [
        ({"label": "a", "confidence": "0.7"}, [("a", 0.7)], 0),
        ({"label": 3}, [("3", 1.0)], 0),
        ({"classified": {"a": 0.2, "b": 0.8}}, [("b", 0.8), ("a", 0.2)], 0),
        ([{"label": "a", "xmin": 0, "ymin": 0, "xmax": 4, "ymax": 4}], [], 1),
        ([{"label": "a", "xmin": 9, "ymin": 0, "xmax": 4, "ymax": 4}, {"label": "b", "xmin": None}], [], 0),
        (None, [], 0),
        ("nothing", [], 0),
        ([], [], 0),
    ],
)
def test_answers_of_any_shape_are_understood(
    answer: Any, scores: list[tuple[str, float]], boxes: int
) -> None:
    found = custom_prediction(answer, 8, 8)
    assert (list(found.scores), len(found.shapes)) == (scores, boxes)
    told = shown(answer, "detection" if boxes or answer == [] else "classification", confidence=0, most=5)
    assert len(told.get("detections", told.get("classified", ()))) >= boxes
