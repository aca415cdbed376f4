"""Detection and segmentation: boxes, and masks where asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.serve.server.pictures.outlines import cut_masks
from weft.vision.evaluation.boxes import OVERLAP, best_boxes
from weft.vision.evaluation.detection import detection_results
from weft.vision.evaluation.precision import PictureResult, mean_precision
from weft.vision.models.detector import Detector
from weft.vision.training.feeding.batches import PictureBatch, PictureSet
from weft.vision.training.feeding.targets import BoxTargets, box_targets
from weft.vision.training.tasks.base import SetScore, TrainingTask
from weft.vision.training.tasks.detection_loss import detection_loss

LEAST_CONFIDENCE = 0.01  # of detections that count for mean average precision


class DetectionTask(TrainingTask):
    """Boxes by aligned assignment; scored by mean average precision over overlaps of 0.5 to 0.95."""

    score_name = "map50_95"

    def targets(
        self, batch: PictureBatch, generator: np.random.Generator, *, mix: bool
    ) -> tuple[Tensor, ...]:
        assert batch.objects is not None
        found = (batch.pixels, batch.objects.boxes, batch.objects.classes)
        return found if batch.objects.masks is None else (*found, batch.objects.masks)

    def loss(
        self, model: nn.Module, pixels: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        assert isinstance(model, Detector)
        masks = targets[2] if len(targets) > 2 else None
        out = model.cells(pixels)
        with torch.autocast(pixels.device.type, enabled=False):
            return detection_loss(out, BoxTargets(targets[0], targets[1], masks))

    def evaluate(
        self, model: nn.Module, pictures: PictureSet, device: torch.device, *, whole: bool
    ) -> SetScore:
        results = self.picture_results(model, pictures, device)
        found = mean_precision(results, len(self.classes))
        figures = {"map50": found.map50, "map50_95": found.map50_95}
        score = found.map50_95 if np.isfinite(found.map50_95) else 0.0
        if not whole:
            return SetScore(score, figures)
        names = [one.id for one in pictures.pictures]
        return SetScore(score, figures, detection_results(results, found, self.classes, names))

    @torch.no_grad()
    def picture_results(
        self, model: nn.Module, pictures: PictureSet, device: torch.device
    ) -> list[PictureResult]:
        """Return true and found objects of every picture, in its own pixels (masks: in the input's, at a quarter)."""
        model.eval()
        found: list[PictureResult] = []
        for batch in self.plain_batches(pictures, device, 16):
            with self.autocast(device):
                outputs = model(batch.pixels)
            arrays = [one.float().cpu().numpy() for one in outputs]
            found += [self._result(pictures, batch, row, arrays) for row in range(len(batch.indices))]
        return found

    def _result(
        self, pictures: PictureSet, batch: PictureBatch, row: int, arrays: list[Any]
    ) -> PictureResult:
        assert pictures.objects is not None
        best = best_boxes(arrays[0][row], arrays[1][row], confidence=LEAST_CONFIDENCE, overlap=OVERLAP)
        truth, matrix = pictures.objects[batch.indices[row]], batch.maps[row]
        # The map has no turn here: both corners move alike.
        width, height = pictures.sizes[batch.indices[row]]
        corners = best.boxes.reshape(-1, 2) @ matrix[:, :2].T + matrix[:, 2]
        boxes = np.clip(corners, 0, [width, height]).reshape(-1, 4)
        masks = truth_masks = None
        if len(arrays) > 2:
            masks = cut_masks(arrays[2][row][best.cells], arrays[3][row], best.boxes)
            moved = box_targets([truth], matrix[None], self.config.sides, masks=True, hidden=True)
            assert moved.masks is not None
            truth_masks = moved.masks[0, : len(truth.classes)].numpy()
        return PictureResult(truth.boxes, truth.classes, boxes, best.scores, best.classes, truth_masks, masks)
