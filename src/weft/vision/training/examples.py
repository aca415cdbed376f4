"""Example predictions of a training, drawn on pictures that it does not learn from, as they become better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from weft.vision.training.feeding.batches import PictureSet
from weft.vision.training.tasks.base import TrainingTask

COUNT = 6  # pictures that are shown


class ExampleWriter:
    """Writes what the best state so far finds in a few pictures, as JSON; whoever shows them draws it on top."""

    def __init__(
        self, task: TrainingTask, pictures: PictureSet | None, device: torch.device, folder: Path
    ) -> None:
        self._task, self._pictures, self._device, self._folder = task, pictures, device, folder

    def __call__(self, model: nn.Module, score: float) -> None:
        if self._pictures is None or not self._pictures.pictures:
            return
        places = np.linspace(0, len(self._pictures) - 1, min(COUNT, len(self._pictures))).astype(int)
        few = self._pictures.some(np.unique(places))
        rows = self._found(model, few)
        self._folder.mkdir(exist_ok=True)
        part = self._folder / "examples.part"
        part.write_text(json.dumps({"score": score, "pictures": rows}, indent=1))
        part.replace(self._folder / "examples.json")

    def _found(self, model: nn.Module, few: PictureSet) -> list[dict[str, Any]]:
        classes = self._task.classes
        names = [{"picture": one.id, "name": one.name} for one in few.pictures]
        if hasattr(self._task, "picture_results"):
            results = self._task.picture_results(model, few, self._device)
            return [
                {**name, "detections": [
                    {"label": classes[int(number)], "confidence": float(score), "box": [float(side) for side in box]}
                    for box, score, number in zip(one.boxes, one.scores, one.classes, strict=True) if score >= 0.3
                ]}
                for name, one in zip(names, results, strict=True)
            ]  # fmt: skip
        scores: Any = getattr(self._task, "scores")(model, few, self._device)  # noqa: B009
        best = scores.max(-1)
        return [
            {**name, "category": classes[int(number)], "confidence": float(score)}
            for name, score, number in zip(names, best.values, best.indices, strict=True)
        ]
