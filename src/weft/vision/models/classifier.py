"""A classifier: a backbone, its pooled features, one linear layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from weft.vision.models.layers import IMAGENET_MEAN, IMAGENET_STD, Backbone, PixelScale


class Classifier(nn.Module):
    """Logits a class from pixels of 0..255."""

    def __init__(
        self,
        backbone: Backbone,
        classes: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        logit_scale: float = 1.0,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        super().__init__()
        self.scale = PixelScale(mean, std)
        self.backbone = backbone
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(backbone.width, classes, bias=bias)
        self.logit_scale = logit_scale

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(self.backbone.pooled(self.scale(pixels))))
        return logits * self.logit_scale if self.logit_scale != 1 else logits

    def features(self, pixels: Tensor) -> Tensor:
        """Return the pooled features, one vector a picture."""
        return self.backbone.pooled(self.scale(pixels))

    def class_maps(self, pixels: Tensor) -> Tensor:
        """Return the heat map of each class: the last feature map, weighed by the class's row of the linear layer."""
        deepest = self.backbone.forward(self.scale(pixels))[-1]
        final = getattr(self.backbone, "final", None)
        features = final(deepest) if final is not None else deepest
        return torch.einsum("nchw,kc->nkhw", features, self.head.weight)


def view_logits(model: nn.Module, pixels: Tensor, *, flips: bool, shift: int) -> Tensor:
    """Return logits averaged over views of each picture: its mirror image, and both moved by `shift` pixels.

    The two moves, towards the left upper and the right lower corner, weigh as much together as the picture as it is.
    """
    views = [(pixels, 0.5), (_moved(pixels, shift), 0.25), (_moved(pixels, -shift), 0.25)] if shift else []
    total: Tensor | None = None
    for view, weight in views or [(pixels, 1.0)]:
        logits = model(view)
        if flips:
            logits = (logits + model(view.flip(-1))) / 2
        total = logits * weight if total is None else total + logits * weight
    assert total is not None
    return total


def _moved(pixels: Tensor, by: int) -> Tensor:
    """Return pictures moved along both axes; what comes in at the edges is reflected."""
    for axis in (-2, -1):
        length, size = pixels.shape[axis], abs(by)
        if by > 0:
            kept, edge = pixels.narrow(axis, by, length - by), pixels.narrow(axis, length - 1 - size, size)
            pixels = torch.cat([kept, edge.flip(axis)], axis)
        else:
            kept, edge = pixels.narrow(axis, 0, length - size), pixels.narrow(axis, 1, size)
            pixels = torch.cat([edge.flip(axis), kept], axis)
    return pixels
