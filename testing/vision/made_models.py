"""Models of pictures that nobody trained, as zips of `weft vision export`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from onnx import helper
from testing.serving.small_models import save, tensor

RESULTS = {
    "task": "classification",
    "score": {"name": "accuracy", "value": 0.75},
    "classes": ["red", "blue"],
    "data": {"name": "colours", "number": 3, "digest": "0" * 64},
}


def model_zip(folder: Path) -> Path:
    """Return the zip of a classifier of two colours."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["pixels"], ["probabilities"])],
        "colours",
        [tensor("pixels", ["rows", 2])],
        [tensor("probabilities", ["rows", 2])],
    )
    model = save(folder / "model.onnx", graph)
    with zipfile.ZipFile(folder / "flowers.zip", "w") as archive:
        archive.write(model, "model.onnx")
        archive.writestr(
            "config.json", json.dumps({"name": "flowers", "task": "classification", "model": "small"})
        )
        archive.writestr("results.json", json.dumps(RESULTS))
    return folder / "flowers.zip"
