"""Fit an anomaly model: features of normal pictures, a memory, and a threshold from pictures left out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.errors import UsageError
from weft.vision.config import VisionConfig, describe, resolve
from weft.vision.models.anomaly import AnomalyDetector
from weft.vision.models.building import load_imagenet
from weft.vision.records import DatasetVersion, LabelledPicture
from weft.vision.training.feeding.batches import PictureSet
from weft.vision.training.feeding.sets import picture_set
from weft.vision.training.folder import CONFIG, RESULTS, WEIGHTS, TrainedModel, write_json
from weft.vision.training.loop import Report
from weft.vision.training.minimum import LEAST_PICTURES, check_minimum

NORMAL = ("normal", "good", "ok")  # categories of pictures without anything wrong
HELD_OUT = 0.25  # share of normal pictures that the threshold is measured on
MARGIN = 1.1  # of the threshold above the farthest normal picture
LEAST_LEARNED = 2  # one that is kept, one that is left out
MEMORY = 2000  # patches that are kept


def is_normal(picture: LabelledPicture) -> bool:
    """A picture is normal if its category says so, or if it has none."""
    return picture.category is None or picture.category.lower() in NORMAL


def train_anomaly(
    config: VisionConfig, version: DatasetVersion, folder: Path, report: Report, *, export: bool = True
) -> TrainedModel:
    """Fit the memory on normal pictures of the training splits, judge it on the test split, write the model folder."""
    from safetensors.torch import save_file

    from weft.vision.export.onnx import export_folder

    config = resolve(config, version)
    check_minimum(config, version)
    normal = [one for one in version.pictures if one.split in config.train_on and is_normal(one)]
    count = sum(map(is_normal, version.pictures))
    if count < LEAST_PICTURES or len(normal) < LEAST_LEARNED:
        raise UsageError(
            f"{version.name} must have at least {LEAST_PICTURES} normal pictures (without a category, or named "
            f"{', '.join(NORMAL)}), {LEAST_LEARNED} of them to learn from, got {count} and {len(normal)}; add some"
        )
    began = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = AnomalyDetector().eval().to(device)
    if config.network.pretrained:
        load_imagenet(model)
    order = np.random.default_rng(config.seed).permutation(len(normal))
    held = max(1, round(len(normal) * HELD_OUT))
    kept, left = [normal[place] for place in order[held:]], [normal[place] for place in order[:held]]
    features = torch.cat([_patches(model, _set(part, config), config, device) for part in _parts(kept)])
    report({"step": 1, "total": 2, "epoch": 0.0, "loss": 0.0, "left_s": time.perf_counter() - began})
    model.fit(features, MEMORY, config.seed)
    model.threshold = model.threshold * float(_scores(model, left, config, device).max()) * MARGIN
    results = {
        "task": "anomaly",
        "classes": ["normal", "anomaly"],
        "pictures": {"train": len(kept), "test": 0},
        "split": "test",
        "epochs": 0.0,
        "training_s": time.perf_counter() - began,
        "data": {"name": version.name, "number": version.number, "digest": version.digest},
        "metrics": {},
    }
    test = judged_pictures(version.pictures)
    if test:
        results["pictures"] = {"train": len(kept), "test": len(test)}
        results |= _judged(_scores(model, test, config, device), test)
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(state, folder / WEIGHTS)
    write_json(folder / CONFIG, describe(config))
    if export:
        results["export"] = export_folder(model.cpu(), config, ("normal", "anomaly"), folder)
    write_json(folder / RESULTS, results)
    return TrainedModel(folder, config, ("normal", "anomaly"), results)


def judged_pictures(pictures: Iterable[LabelledPicture]) -> list[LabelledPicture]:
    """Return the test split, and the anomalies of all others: a memory of normal pictures has learned from none."""
    return [one for one in pictures if one.split == "test" or not is_normal(one)]


def _judged(scores: np.ndarray[Any, Any], test: list[LabelledPicture]) -> dict[str, Any]:
    truth = np.array([not is_normal(one) for one in test])
    metrics = {"accuracy": float(((scores > 1) == truth).mean())}
    if truth.any() and not truth.all():
        metrics["auroc"] = area_under(scores, truth)
    return {"metrics": metrics, "score": {"name": "accuracy", "value": metrics["accuracy"]}}


def area_under(scores: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> float:
    """Return the area under the ROC curve: how often an anomaly scores above a normal picture; ties count half."""
    bad, good = scores[truth], scores[~truth]
    above = (bad[:, None] > good[None]).mean()
    equal = (bad[:, None] == good[None]).mean()
    return float(above + equal / 2)


def _parts(pictures: list[LabelledPicture], count: int = 8) -> list[list[LabelledPicture]]:
    return [pictures[start : start + count] for start in range(0, len(pictures), count)]


def _set(pictures: list[LabelledPicture], config: VisionConfig) -> PictureSet:
    return picture_set(pictures, config, ())


@torch.no_grad()
def _patches(
    model: AnomalyDetector, pictures: PictureSet, config: VisionConfig, device: torch.device
) -> torch.Tensor:
    batch = pictures.plain_batch(np.arange(len(pictures)), config, device)
    return model.patches(batch.pixels).permute(0, 2, 3, 1).flatten(0, 2)


@torch.no_grad()
def _scores(
    model: AnomalyDetector, pictures: list[LabelledPicture], config: VisionConfig, device: torch.device
) -> np.ndarray[Any, Any]:
    found = []
    for part in _parts(pictures):
        batch = _set(part, config).plain_batch(np.arange(len(part)), config, device)
        found.append(model(batch.pixels)[0].cpu().numpy())
    return np.concatenate(found)
