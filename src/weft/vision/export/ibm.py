"""A model as a zip, in the manner of PowerAI Vision's exports: the ONNX file, its properties, its labels.

IBM's own weights are Caffe's and Detectron's, so its products cannot run ours; the zip holds what a reader of either
side needs: `model.onnx`, `prop.json` with the names of IBM's records, `labels.txt`, and our model folder whole.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from weft.errors import UsageError
from weft.vision.formats.archives import unpack
from weft.vision.inference.predictor import read_folder

USAGES = {"classification": "cic", "detection": "cod", "segmentation": "cod", "anomaly": "anomaly"}
FILES = ("config.json", "results.json", "weights.safetensors", "model.onnx")


def write_zip(folder: str | Path, target: str | Path) -> Path:
    """Write a model folder as a zip; return its path."""
    model, path = read_folder(folder), Path(target)
    if path.suffix != ".zip":
        raise UsageError(f"the file must be named .zip, got {path}")
    properties = {
        "name": model.name,
        "usage": USAGES[model.config.task or "classification"],
        "nn_arch": model.config.network.name,
        "categories": list(model.classes),
        "accuracy": str((model.results.get("score") or {}).get("value")),
        "production_status": "untested",
        "strategy": model.results.get("data", {}),
    }
    part = path.with_name(path.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("prop.json", json.dumps(properties, indent=1))
        archive.writestr("labels.txt", "\n".join(model.classes) + "\n")
        for name in FILES:
            if (model.folder / name).is_file():
                archive.write(model.folder / name, name)
    part.replace(path)
    return path


def read_zip(archive: str | Path, folder: str | Path) -> Any:
    """Unpack such a zip as a model folder and return what it says of itself."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    unpack(Path(archive), target)
    return read_folder(target)
