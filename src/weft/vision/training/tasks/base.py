"""The contract of a task with a training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.vision.config.schema import VisionConfig
from weft.vision.models.building import build_model
from weft.vision.training.feeding.batches import PictureBatch, PictureSet, ahead, decoding_pool


@dataclass(frozen=True)
class SetScore:
    """The quality of a model on a set: the number to choose by, figures to log, and everything for a results page."""

    score: float
    figures: Mapping[str, float]
    results: Mapping[str, Any] = field(default_factory=dict)


class LossModule(nn.Module):
    """A model whose `forward` is its loss: what a data-parallel wrapper wants."""

    def __init__(self, model: nn.Module, task: TrainingTask) -> None:
        super().__init__()
        self.model = model
        self._task = task

    def forward(self, pixels: Tensor, *targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self._task.loss(self.model, pixels, targets)


class TrainingTask(ABC):
    """One kind of label: how its loss is computed and how a set is scored."""

    score_name: str

    def __init__(self, config: VisionConfig, classes: tuple[str, ...]) -> None:
        self.config, self.classes = config, classes

    def build(self, *, load: bool = True) -> nn.Module:
        masks = self.config.task == "segmentation"
        return build_model(self.config.network, len(self.classes), masks=masks, load=load)

    @abstractmethod
    def targets(
        self, batch: PictureBatch, generator: np.random.Generator, *, mix: bool
    ) -> tuple[Tensor, ...]:
        """Return pixels and targets of a batch as the loss takes them."""

    @abstractmethod
    def loss(
        self, model: nn.Module, pixels: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and its parts."""

    @abstractmethod
    def evaluate(
        self, model: nn.Module, pictures: PictureSet, device: torch.device, *, whole: bool
    ) -> SetScore:
        """Score a set; with `whole`, gather everything for a results page."""

    def plain_batches(self, pictures: PictureSet, device: torch.device, batch: int) -> Any:
        """Yield batches of a set in order, made ahead where they come from files."""
        parts = np.array_split(np.arange(len(pictures)), max(1, -(-len(pictures) // batch)))
        if pictures.ready:
            for part in parts:
                yield pictures.plain_batch(part, self.config, device)
            return
        with decoding_pool(self.config) as pool:
            makers = (lambda part=part: pictures.plain_batch(part, self.config, device) for part in parts)
            yield from ahead(pool, makers)

    def autocast(self, device: torch.device) -> Any:
        kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.config.precision or "")
        return torch.autocast(device.type, dtype=kind, enabled=kind is not None)
