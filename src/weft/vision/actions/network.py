"""The network for actions: features of each frame, what they are, where they go and how much they change."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft.vision.models.efficientnet import EfficientNetLite0
from weft.vision.models.layers import PixelScale

CELLS = (
    8  # a side: frames are also seen as so many blocks, since pooled features do not tell where something is
)


class ActionNet(nn.Module):
    """Probabilities of actions in clips: rows x frames x 3 x height x width of 0..255."""

    centre: Tensor
    spread: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scale = PixelScale()
        self.backbone = EfficientNetLite0()
        width = 3 * (self.backbone.width + 3 * CELLS * CELLS)
        self.head = nn.Linear(width, classes)
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def features(self, clips: Tensor) -> Tensor:
        """Return one vector a clip: the mean over its frames, its second half less its first, and the change."""
        rows, frames = clips.shape[0], clips.shape[1]
        pixels = self.scale(clips.flatten(0, 1))
        blocks = functional.adaptive_avg_pool2d(pixels, CELLS).flatten(1)
        each = torch.cat([self.backbone.pooled(pixels), blocks], 1).view(rows, frames, -1)
        half = frames // 2
        trend = each[:, half:].mean(1) - each[:, :half].mean(1)
        change = (each[:, 1:] - each[:, :-1]).abs().mean(1)
        return torch.cat([each.mean(1), trend, change], 1)

    def forward(self, clips: Tensor) -> Tensor:
        logits: Tensor = self.head((self.features(clips) - self.centre) / self.spread)
        return logits.softmax(-1)
