"""Scripts of trials that log by MLflow or for TensorBoard, and not by weft.log."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.tune.runners.logged import LoggedElsewhere, mlflow_variables
from weft.tune.study.config import convert_config
from weft.tune.study.study import Study

# Writes an event file as SummaryWriter does, which is open as long as it trains, or closed again at once.
EVENTS = """
import os, struct, sys, time
from pathlib import Path
lr, stays = float(sys.argv[1]), sys.argv[2] == "open"
folder = Path("runs" if not stays else "elsewhere/deep") / f"lr{lr}"
folder.mkdir(parents=True, exist_ok=True)
with (folder / f"events.out.tfevents.1700000000.host.{os.getpid()}.0").open("wb") as file:
    for step in range(1, 4):
        value = b"\\x0a\\x04loss\\x15" + struct.pack("<f", lr + 1 / step)
        summary = b"\\x0a" + bytes([len(value)]) + value
        event = b"\\x09" + bytes(8) + b"\\x10" + bytes([step]) + b"\\x2a" + bytes([len(summary)]) + summary
        file.write(struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4))
        file.flush()
    if stays:
        time.sleep(0.7)
"""
MLFLOW = """
import sys, mlflow
with mlflow.start_run():
    mlflow.log_param("lr", sys.argv[1])
    for step in range(1, 4):
        mlflow.log_metric("val/loss", float(sys.argv[1]) + 1 / step, step=step)
"""


def study(folder: Path, script: str, run: str, metric: str = "loss") -> Study:
    (folder / "train.py").write_text(script)
    settings = {
        "space": {"lr": [0.25, 0.5]},
        "minimize": metric,
        "run": run,
        "search": "grid",
        "parallel": 2,
        "checkpoints": False,
    }
    return Study.from_config(convert_config(settings), folder / "study")


@pytest.mark.parametrize("how", ["open", "closed"])
def test_event_files_for_tensorboard_are_reports(how: str, tmp_path: Path) -> None:
    with study(tmp_path, EVENTS, f"train.py {{lr}} {how}") as made:
        made.run(cwd=tmp_path)
        assert {t.params["lr"]: t.curve for t in made.trials} == {
            lr: pytest.approx([lr + 1, lr + 1 / 2, lr + 1 / 3]) for lr in (0.25, 0.5)
        }
        assert made.best_params == {"lr": 0.25}


@pytest.mark.skipif(find_spec("mlflow") is None, reason="needs MLflow")
def test_metrics_of_mlflow_are_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with study(tmp_path, MLFLOW, "train.py {lr}", "val/loss") as made:
        made.run(cwd=tmp_path)
        assert {t.params["lr"]: t.steps for t in made.trials} == {0.25: [1, 2, 3], 0.5: [1, 2, 3]}
        assert made.best_value == pytest.approx(0.25 + 1 / 3)
    assert not (tmp_path / "mlruns").exists()


def test_metrics_of_mlflow_without_steps_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "mlruns" / "0" / "abc" / "metrics"
    folder.mkdir(parents=True)
    (folder / "loss").write_text("1 0.5 0\n2 0.25 0\n3 0.12")
    logged = LoggedElsewhere(tmp_path)
    assert list(logged.new()) == [(0, {"loss": 0.5}), (1, {"loss": 0.25})]
    with (folder / "loss").open("a") as file:
        file.write("5 7\nnot a line\n")
    assert list(logged.new()) == [(7, {"loss": 0.125})]


def test_a_script_that_is_told_where_mlflow_is_logs_there(tmp_path: Path) -> None:
    assert mlflow_variables(tmp_path, {"MLFLOW_TRACKING_URI": "http://mlflow:5000"}) == {}
    assert mlflow_variables(tmp_path, {})["MLFLOW_TRACKING_URI"] == f"file://{tmp_path}/mlruns"
