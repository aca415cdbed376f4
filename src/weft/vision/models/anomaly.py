"""Anomalies by distance: features of patches of normal pictures are kept, and a new patch is judged by the nearest.

Patch features are two levels of a pretrained backbone, averaged over neighbours. A subset that covers them (each next
one the farthest from those chosen, as PatchCore does) is the memory; there is no training loop.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft.vision.models.efficientnet import EfficientNetLite0
from weft.vision.models.layers import PixelScale

WIDTH = 128  # of a random projection, in which the farthest patches are looked for


class AnomalyDetector(nn.Module):
    """Scores pictures and their patches; a score of 1 is the threshold."""

    memory: Tensor
    threshold: Tensor

    def __init__(self, memory_size: int = 0) -> None:
        super().__init__()
        self.scale = PixelScale()
        self.backbone = EfficientNetLite0(finest=8, coarsest=16)
        width = sum(level.channels for level in self.backbone.levels)
        self.register_buffer("memory", torch.zeros(memory_size, width))
        self.register_buffer("threshold", torch.ones(()))

    def patches(self, pixels: Tensor) -> Tensor:
        """Return features of patches: rows x channels x height/8 x width/8."""
        maps = [functional.avg_pool2d(one, 3, 1, 1) for one in self.backbone(self.scale(pixels))]
        finest = maps[0].shape[-2:]
        joined = [
            functional.interpolate(one, size=finest, mode="bilinear", align_corners=False) for one in maps
        ]
        return functional.normalize(torch.cat(joined, 1), dim=1)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the score of each picture, and of each of its patches."""
        features = self.patches(pixels)
        rows, channels, height, width = features.shape
        flat = features.permute(0, 2, 3, 1).reshape(-1, channels)
        # |a - b|^2 of vectors of length 1; the product is what takes the time.
        squared = (2 - 2 * flat @ self.memory.T).clamp(min=0)
        nearest = squared.amin(1).sqrt().view(rows, height, width) / self.threshold
        return nearest.flatten(1).amax(1), nearest

    @torch.no_grad()
    def fit(self, features: Tensor, most: int = 2000, seed: int = 0) -> None:
        """Keep a covering subset of patch features (n x channels)."""
        self.memory = features[covering(features, min(most, len(features)), seed)].clone()


def covering(features: Tensor, count: int, seed: int = 0) -> Tensor:
    """Return places of `count` rows, each the farthest from those before it."""
    generator = torch.Generator().manual_seed(seed)
    projection = torch.randn(features.shape[1], WIDTH, generator=generator) / WIDTH**0.5
    rows = features.cpu() @ projection
    chosen = torch.empty(count, dtype=torch.long)
    place = int(torch.randint(len(rows), (), generator=generator))
    distance = torch.full((len(rows),), float("inf"))
    for number in range(count):
        chosen[number] = place
        distance = torch.minimum(distance, (rows - rows[place]).pow(2).sum(1))
        place = int(distance.argmax())
    return chosen
