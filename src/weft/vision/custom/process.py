"""The process of a custom model: `python -m weft.vision.custom.process train|deploy TASK.json`."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.vision.custom import contract
from weft.vision.custom.running import MARK


def main(verb: str, file: str) -> int:
    """Carry out a task; return the exit code."""
    task = json.loads(Path(file).read_text())
    sys.path.insert(0, task["code"])
    logging.basicConfig(level=logging.INFO)  # as in IBM's products, whose samples log what they do
    # The names that IBM's samples import.
    sys.modules["train_interface"] = sys.modules["deploy_interface"] = contract
    return train(task) if verb == "train" else deploy(task)


def tell(values: Mapping[str, Any]) -> None:
    print(MARK + json.dumps(values, default=plain), flush=True)


def plain(value: Any) -> Any:
    """Return a number or an array of NumPy, or of a framework, as JSON can hold it."""
    for method in ("tolist", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def train(task: Mapping[str, Any]) -> int:
    """Call MyTrain's methods in their order."""
    mine = importlib.import_module("train").MyTrain()
    Path(task["model"]).mkdir(exist_ok=True)
    labels = {name: number for number, name in enumerate(task["classes"])}
    images = task["images"]
    if not isinstance(images, dict):
        images = [annotation(one) for one in images]
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("onPreprocessing", lambda: mine.onPreprocessing(labels, images, task["workspace"], task["params"])),
        ("onTraining", lambda: mine.onTraining(contract.MonitorHandler(tell))),
        ("onCompleted", lambda: mine.onCompleted(task["model"])),
    )
    return _called(mine, steps)


def annotation(given: Mapping[str, Any]) -> contract.Annotation:
    """Return a picture of a task as a detector's training gets it."""
    objects = [contract.AnnotatedObject(**one) for one in given["objects"]]
    return contract.Annotation(given["filename"], tuple(given["size"]), objects)


def deploy(task: Mapping[str, Any]) -> int:
    """Load the model, then answer for one picture a line until standard input ends."""
    mine = importlib.import_module("deploy").MyDeploy()
    labels = dict(enumerate(task["classes"]))
    said: list[Any] = []
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("onModelLoading", lambda: mine.onModelLoading(task["model"], labels, task["workspace"])),
        ("onTest", lambda: said.append(mine.onTest() if hasattr(mine, "onTest") else None)),
    )
    if _called(mine, steps):
        return 1
    tell({"ready": True, "test": said[0]})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            tell({"answer": mine.onInference(asked["picture"], asked["params"])})
        except Exception as error:
            _failed(mine, "onInference", error)
            tell({"error": f"{type(error).__name__}: {error}"})
    return 0


def _called(mine: Any, steps: tuple[tuple[str, Callable[[], Any]], ...]) -> int:
    for name, step in steps:
        try:
            step()
        except Exception as error:
            traceback.print_exc()
            _failed(mine, name, error)
            return 1
    return 0


def _failed(mine: Any, name: str, error: Exception) -> None:
    """Tell a custom model what failed, if it wants to know; a failure to hear it is no other one."""
    if not hasattr(mine, "onFailed"):
        return
    try:
        mine.onFailed(name, error, traceback.format_exc())
    except Exception:
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
