"""Classification: one category a picture."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from weft.vision.evaluation.classification import classification_results
from weft.vision.models.classifier import view_logits
from weft.vision.training.feeding.batches import PictureBatch, PictureSet
from weft.vision.training.mixing import mixed, soft_targets
from weft.vision.training.tasks.base import SetScore, TrainingTask


class ClassificationTask(TrainingTask):
    """Cross entropy with smoothed and mixed labels; scored by accuracy."""

    score_name = "accuracy"

    def targets(
        self, batch: PictureBatch, generator: np.random.Generator, *, mix: bool
    ) -> tuple[Tensor, ...]:
        assert batch.classes is not None
        targets = soft_targets(batch.classes, len(self.classes), self.config.label_smoothing or 0.0)
        return (
            mixed(generator, batch.pixels, targets, self.config.augment) if mix else (batch.pixels, targets)
        )

    def loss(
        self, model: nn.Module, pixels: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        logs = model(pixels).float().log_softmax(-1)
        return -(targets[0] * logs).sum(-1).mean(), {}

    @torch.no_grad()
    def evaluate(
        self, model: nn.Module, pictures: PictureSet, device: torch.device, *, whole: bool
    ) -> SetScore:
        assert pictures.classes is not None
        scores = self.scores(model, pictures, device)
        truth = torch.from_numpy(pictures.classes).to(device)
        right = float((scores.argmax(-1) == truth).float().mean())
        loss = float(torch.nn.functional.nll_loss(scores.clamp(min=1e-12).log(), truth))
        results = {}
        if whole:
            names = [one.id for one in pictures.pictures] or [str(place) for place in range(len(pictures))]
            results = classification_results(scores.cpu().numpy(), pictures.classes, self.classes, names)
        return SetScore(right, {"accuracy": right, "loss": loss}, results)

    @torch.no_grad()
    def scores(self, model: nn.Module, pictures: PictureSet, device: torch.device) -> Tensor:
        """Return probabilities, pictures x classes."""
        model.eval()
        found = []
        for batch in self.plain_batches(pictures, device, 500 if max(self.config.sides) <= 64 else 64):
            with self.autocast(device):
                logits = view_logits(
                    model, batch.pixels, flips=self.config.test_flips, shift=self.config.test_shift
                )
            found.append(logits.float().softmax(-1))
        return torch.cat(found)
