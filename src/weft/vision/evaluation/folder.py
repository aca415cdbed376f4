"""Evaluate a model folder on a data set."""

from __future__ import annotations

from pathlib import Path

from weft.errors import UsageError
from weft.vision.inference.predictor import load_network, read_folder
from weft.vision.records import DatasetVersion
from weft.vision.training.feeding.sets import picture_set
from weft.vision.training.tasks import SetScore, task_for


def evaluate_folder(folder: str | Path, version: DatasetVersion, split: str = "test") -> SetScore:
    """Return the figures of a model on the labelled pictures of a split, or of all."""
    model = read_folder(folder)
    if model.config.task == "anomaly":
        raise UsageError("an anomaly model must be judged by `weft vision predict`, got `evaluate`")
    detects = model.config.task in ("detection", "segmentation")
    wanted = [
        one
        for one in version.pictures
        if split in ("all", one.split) and (detects or one.category in model.classes)
    ]
    if not wanted:
        raise UsageError(
            f"{version.name} must have labelled pictures in the split {split}, got none; try --split all"
        )
    net, device = load_network(model)
    inner = net.model
    task = task_for(model.config, model.classes)
    return task.evaluate(inner, picture_set(wanted, model.config, model.classes), device, whole=True)
