"""An anchor-free detector: every cell of the pyramid tells a score a class and the distances to the sides of its box.

Distances are told as distributions over bins of one stride each, of which the mean is taken: that trains better on few
pictures than a number does. Head convolutions are shared by all levels, norms are each level's own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft.vision.models.layers import Backbone, ConvNorm, PixelScale
from weft.vision.models.pyramid import FeaturePyramid

BINS = 16  # of a distance, in strides of its level
PROTOTYPES = 32  # masks from which the mask of an object is summed


class CellOutputs(NamedTuple):
    """The raw outputs of all cells of all levels: rows x cells x ..."""

    classes: Tensor  # logits
    distances: Tensor  # logits of bins: 4 x BINS
    centres: Tensor  # cells x 2, in pixels
    strides: Tensor  # cells
    coefficients: Tensor | None = None  # of the mask's prototypes
    prototypes: Tensor | None = None  # rows x PROTOTYPES x height/4 x width/4


class LevelNorms(nn.Module):
    """A convolution that all levels share, with a batch norm for each."""

    def __init__(self, width: int, levels: int, *, light: bool) -> None:
        super().__init__()
        self.conv: nn.Module = (
            nn.Sequential(
                nn.Conv2d(width, width, 5, padding=2, groups=width, bias=False),
                nn.Conv2d(width, width, 1, bias=False),
            )
            if light
            else nn.Conv2d(width, width, 3, padding=1, bias=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, eps=1e-3, momentum=0.03) for _ in range(levels))
        self.activation: nn.Module = nn.ReLU6() if light else nn.SiLU()

    def forward(self, x: Tensor, level: int) -> Tensor:
        out: Tensor = self.activation(self.norms[level](self.conv(x)))
        return out


class DetectionHead(nn.Module):
    """Classes, boxes, and mask coefficients where asked, of every cell."""

    def __init__(self, width: int, levels: int, classes: int, *, light: bool, masks: bool) -> None:
        super().__init__()
        depth = 1 if light else 2
        self.class_convs = nn.ModuleList(LevelNorms(width, levels, light=light) for _ in range(depth))
        self.box_convs = nn.ModuleList(LevelNorms(width, levels, light=light) for _ in range(depth))
        self.classes, self.boxes = nn.Conv2d(width, classes, 1), nn.Conv2d(width, 4 * BINS, 1)
        self.masks = nn.Conv2d(width, PROTOTYPES, 1) if masks else None
        assert self.classes.bias is not None
        nn.init.constant_(self.classes.bias, -math.log((1 - 0.01) / 0.01))  # objects are rare at first

    def forward(self, x: Tensor, level: int) -> tuple[Tensor, Tensor, Tensor | None]:
        towards_class = towards_box = x
        for conv in self.class_convs:
            towards_class = conv(towards_class, level)
        for conv in self.box_convs:
            towards_box = conv(towards_box, level)
        masks = None if self.masks is None else _flat(self.masks(towards_box))
        return _flat(self.classes(towards_class)), _flat(self.boxes(towards_box)), masks


class MaskPrototypes(nn.Module):
    """Masks at a quarter of the picture's sides, from the finest level of the pyramid."""

    def __init__(self, width: int, grow: int) -> None:
        super().__init__()
        self.before = ConvNorm(width, width)
        self.grow = grow  # cells of stride 4 per cell of the finest level, a side
        self.after = ConvNorm(width, width)
        self.out = nn.Conv2d(width, PROTOTYPES, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        x = functional.interpolate(x, scale_factor=float(self.grow), mode="nearest") if self.grow > 1 else x
        out: Tensor = self.out(self.after(x))
        return out


class Detector(nn.Module):
    """The whole network, from pixels of 0..255 to boxes and scores.

    `shrink` pools pixels before the backbone: half the sides take a quarter of the time, and small objects suffer.
    """

    def __init__(
        self,
        backbone: Backbone,
        classes: int,
        *,
        width: int = 128,
        light: bool = False,
        masks: bool = False,
        shrink: float = 1.0,
    ) -> None:
        super().__init__()
        self.scale = PixelScale()
        self.backbone, self.shrink, self.class_count = backbone, shrink, classes
        self.neck = FeaturePyramid(backbone.levels, width, light=light)
        self.head = DetectionHead(width, len(backbone.levels), classes, light=light, masks=masks)
        self.prototypes = (
            MaskPrototypes(width, max(1, round(backbone.levels[0].stride * shrink / 4))) if masks else None
        )

    def cells(self, pixels: Tensor) -> CellOutputs:
        """Return the raw outputs, for the loss."""
        x = self.scale(pixels)
        if self.shrink != 1:
            size = [int(side / self.shrink) for side in x.shape[-2:]]
            x = functional.interpolate(x, size=size, mode="bilinear", antialias=False)
        maps = self.neck(self.backbone(x))
        found = [self.head(one, level) for level, one in enumerate(maps)]
        places = [
            _centres(one, level.stride * self.shrink)
            for one, level in zip(maps, self.backbone.levels, strict=True)
        ]
        strides = [
            one.new_full((len(centres),), level.stride * self.shrink, dtype=torch.float32)
            for one, level, centres in zip(maps, self.backbone.levels, places, strict=True)
        ]
        parts = [masks for _, _, masks in found if masks is not None]
        return CellOutputs(
            torch.cat([classes for classes, _, _ in found], 1),
            torch.cat([boxes for _, boxes, _ in found], 1),
            torch.cat(places),
            torch.cat(strides),
            torch.cat(parts, 1) if parts else None,
            self.prototypes(maps[0]) if self.prototypes is not None else None,
        )

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Return boxes (rows x cells x 4, in pixels of the input) and scores (rows x cells x classes), and with masks
        the coefficients and the prototypes that they weigh.
        """
        out = self.cells(pixels)
        boxes = decode_boxes(out.distances.float(), out.centres, out.strides)
        scores = out.classes.float().sigmoid()
        if out.coefficients is None or out.prototypes is None:
            return boxes, scores
        return boxes, scores, out.coefficients.float(), out.prototypes.float()


def decode_boxes(distances: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Return boxes (xmin, ymin, xmax, ymax) in pixels from logits of bins."""
    shape = (*distances.shape[:2], 4, BINS)
    bins = torch.arange(BINS, dtype=distances.dtype, device=distances.device)
    mean = (distances.view(shape).softmax(-1) * bins).sum(-1) * strides.view(1, -1, 1)
    return torch.cat([centres - mean[..., :2], centres + mean[..., 2:]], -1)


def _flat(x: Tensor) -> Tensor:
    """Return a map as rows x cells x channels."""
    return x.flatten(2).transpose(1, 2)


def _centres(x: Tensor, stride: float) -> Tensor:
    height, width = x.shape[-2:]
    across = (torch.arange(width, device=x.device, dtype=torch.float32) + 0.5) * stride
    down = (torch.arange(height, device=x.device, dtype=torch.float32) + 0.5) * stride
    ys, xs = torch.meshgrid(down, across, indexing="ij")
    return torch.stack([xs, ys], -1).view(-1, 2)
