"""A model folder's `model.onnx`: pixels of 0..255 in, probabilities or boxes out; checked against torch.

Its card tells a server how to fit a picture into the input, so `weft serve` takes JPEGs and PNGs for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import ModelError
from weft.serve.card import Card
from weft.vision.config.schema import VisionConfig
from weft.vision.evaluation.boxes import OVERLAP
from weft.vision.models.anomaly import AnomalyDetector
from weft.vision.models.classifier import Classifier, view_logits
from weft.vision.models.detector import Detector
from weft.vision.pictures.rules import picture_rules

FILE = "model.onnx"
TOLERANCE = 1e-4  # between the file's answers and torch's
DISTANCE_TOLERANCE = 1e-3  # of an anomaly model: roots of small differences
HEAT_CLASSES = 200  # more classes have no heat maps in the file: each answer would be large
LEAST_HEAT = 0.1  # evidence under which a map is not spread over 0..1: it would be noise
NAMES = ("boxes", "scores", "coefficients", "prototypes")


class ServedClassifier(nn.Module):
    """A classifier that answers with probabilities, and with heat maps of its classes where it can.

    `heat` is rows x classes x height x width of 0..1, a cell of the last feature map each: where a class was seen.
    """

    def __init__(self, model: nn.Module, config: VisionConfig) -> None:
        super().__init__()
        self.model, self.flips, self.shift = model, config.test_flips, config.test_shift

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        logits = view_logits(self.model, pixels, flips=self.flips, shift=self.shift)
        answer = {"probabilities": logits.softmax(-1)}
        if isinstance(self.model, Classifier) and logits.shape[-1] <= HEAT_CLASSES:
            maps = self.model.class_maps(pixels).clamp(min=0)
            answer["heat"] = maps / maps.amax((2, 3), keepdim=True).clamp(min=LEAST_HEAT)
        return answer


class ServedAnomaly(nn.Module):
    """An anomaly model that answers as a classifier of `normal` and `anomaly`, with its distances.

    `score` is the picture's distance in times of the threshold, `patches` that of each patch.
    """

    def __init__(self, model: AnomalyDetector) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        score, patches = self.model(pixels)
        sure = score / (1 + score)
        heat = (patches / 2).clamp(0, 1)
        return {
            "probabilities": torch.stack([1 - sure, sure], -1),
            "heat": torch.stack([torch.zeros_like(heat), heat], 1),
            "score": score,
            "patches": patches,
        }


class ServedDetector(nn.Module):
    """A detector that answers with boxes in pixels of its input and scores a class, cell by cell."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        return dict(zip(NAMES, self.model(pixels), strict=False))


def export_folder(
    model: nn.Module, config: VisionConfig, classes: tuple[str, ...], folder: Path
) -> dict[str, Any]:
    """Write `model.onnx` and return what was found; a reason in place of it where packages are missing."""
    try:
        found = export_onnx(model, config, classes, folder / FILE)
    except ModelError as error:
        return {"file": None, "reason": str(error)}
    return {"file": FILE, "largest_difference": found, "bytes": (folder / FILE).stat().st_size}


def served_module(model: nn.Module, config: VisionConfig) -> nn.Module:
    """Return a network as it is served."""
    if isinstance(model, Detector):
        return ServedDetector(model)
    return ServedAnomaly(model) if isinstance(model, AnomalyDetector) else ServedClassifier(model, config)


def export_onnx(model: nn.Module, config: VisionConfig, classes: tuple[str, ...], path: Path) -> float:
    """Write the file and return its largest difference from torch."""
    from weft.serve.export.api import export

    detects = isinstance(model, Detector)
    served = served_module(model, config)
    card = Card(
        name=config.name,
        task="detect" if detects else "classify",
        labels=classes,
        picture=picture_rules(config),
        overlap=OVERLAP if detects else 0.5,
        notes=f"weft.vision {config.task} by {config.network.name}",
    )
    generator = np.random.default_rng(0)
    samples = generator.integers(0, 256, (2, 3, *config.sides), dtype=np.uint8)
    with torch.no_grad():
        done = export(
            served.eval(),
            samples,
            path,
            card=card,
            batches=(1, 2),
            rtol=1e-5 if detects else 0.0,
            atol=DISTANCE_TOLERANCE if isinstance(model, AnomalyDetector) else TOLERANCE,
        )
    return done.parity.largest
