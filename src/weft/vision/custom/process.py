"""The process of a custom model: `python -m weft.vision.custom.process train|deploy TASK.json`."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.vision.custom import contract
from weft.vision.custom.running import MARK
from weft.vision.pictures import decode


def main(verb: str, file: str) -> int:
    """Carry out a task; return the exit code."""
    task = json.loads(Path(file).read_text())
    sys.path.insert(0, task["code"])
    # The names that IBM's samples import.
    sys.modules["train_interface"] = sys.modules["deploy_interface"] = contract
    return train(task) if verb == "train" else deploy(task)


def tell(values: Mapping[str, Any]) -> None:
    print(MARK + json.dumps(values), flush=True)


def train(task: Mapping[str, Any]) -> int:
    """Call MyTrain's methods in their order."""
    mine = importlib.import_module("train").MyTrain()
    images = {path: decode(Path(path)) for path in task["labels"]}
    Path(task["model"]).mkdir(exist_ok=True)
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        (
            "onPreprocessing",
            lambda: mine.onPreprocessing(task["labels"], images, task["workspace"], task["params"]),
        ),
        ("onTraining", lambda: mine.onTraining(contract.MonitorHandler(tell))),
        ("onCompleted", lambda: mine.onCompleted(task["model"])),
    )
    return _called(mine, steps)


def deploy(task: Mapping[str, Any]) -> int:
    """Load the model, then answer for one picture a line until standard input ends."""
    mine = importlib.import_module("deploy").MyDeploy()
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("onModelLoading", lambda: mine.onModelLoading(task["model"], task["labels"], task["workspace"])),
        ("onTest", mine.onTest),
    )
    if _called(mine, steps):
        return 1
    tell({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            tell({"answer": mine.onInference(asked["picture"], asked["params"])})
        except Exception as error:
            mine.onFailed("onInference", error, traceback.format_exc())
            tell({"error": f"{type(error).__name__}: {error}"})
    return 0


def _called(mine: Any, steps: tuple[tuple[str, Callable[[], Any]], ...]) -> int:
    for name, step in steps:
        try:
            step()
        except Exception as error:
            mine.onFailed(name, error, traceback.format_exc())
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
