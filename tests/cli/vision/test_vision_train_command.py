"""`weft vision train`: on a jobs service, and by the code of a custom model."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from testing.jobs.web import ServiceThread
from testing.vision.made_pictures import encoded, picture_file

from weft.cli import call
from weft.cli.vision.train import changed

TRAIN = """
from train_interface import TrainCallback

class MyTrain(TrainCallback):
    def onPreprocessing(self, labels, images, workspace_path, params):
        self.count = len(images)

    def onTraining(self, monitor_handler):
        monitor_handler.updateTrainMetrics(1, 1, 0.5, 1)

    def onCompleted(self, model_path):
        open(model_path + "/count", "w").write(str(self.count))
"""


def custom_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "mine.zip", "w") as archive:
        archive.writestr("mine/train.py", TRAIN)
        archive.writestr("mine/deploy.py", "class MyDeploy: pass")
    return folder / "mine.zip"


def test_a_training_is_begun_on_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colours.yaml").write_text(
        "data: colours\nname: mine\nmodel: small\nbatch: 4\nschedule: {epochs: 9}\n"
    )
    with ServiceThread(tmp_path, {}) as service:
        monkeypatch.setenv("WEFT_TOKEN", service.running.token)
        library = service.running.state.jobs.trainings.library
        made = library.create("colours", user=None)
        for seed in range(12):
            library.add(made.id, encoded(seed=seed), f"{seed}.jpg", category=("red", "blue")[seed % 2])

        def weft(*line: str, code: int = 0) -> Any:
            assert call(["vision", "train", *line, "--url", service.url]) == code
            told = capsys.readouterr()
            return told.out if code == 0 else told.err

        begun = json.loads(weft(str(tmp_path / "colours.yaml"), "--epochs", "3", "--json"))
        assert (begun["task"], begun["network"], begun["dataset_name"]) == (
            "classification",
            "small",
            "colours",
        )
        said = weft("--data", "colours@1", "--model", "small")
        assert "trains small for classification on colours@1" in said
        assert "weft logs -f" in said
        own = json.loads(weft("--data", "colours", "--custom", str(custom_zip(tmp_path)), "--json"))
        assert own["network"] == "custom"
        assert "NAME@VERSION" in weft("--data", "colours@new", code=2)
        assert "without --url" in weft("--data", "colours", "--dry-run", code=2)
        assert "must exist" in weft("--data", "colour", code=2)


def test_a_service_is_told_what_differs_from_what_is_usual() -> None:
    usual = {
        "model": {"name": None, "dropout": 0.0},
        "schedule": {"epochs": None, "warmup": 0.05},
        "batch": None,
    }
    given = {"model": "small", "schedule": {"epochs": 3.0, "warmup": 0.05}, "batch": None}
    assert changed(given, usual) == {"model": "small", "schedule": {"epochs": 3.0}}


def test_a_custom_model_is_trained_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(4):
        picture_file(tmp_path / "data" / ("rose", "tulip")[seed % 2], f"{seed}.jpg", seed=seed)
    words = [
        "--data",
        str(tmp_path / "data"),
        "--custom",
        str(custom_zip(tmp_path)),
        "--out",
        str(tmp_path / "model"),
    ]
    assert call(["vision", "train", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "classification"
    assert (tmp_path / "model/model/count").read_text() == "4"
