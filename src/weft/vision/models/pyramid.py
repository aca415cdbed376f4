"""A feature pyramid: levels of a backbone, each enriched by the coarser and then by the finer ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft.vision.models.layers import ConvNorm, FeatureLevel, SeparableConv


class PyramidMixer(nn.Module):
    """Joins two maps of one resolution into one of `width` channels."""

    def __init__(self, width: int, *, light: bool) -> None:
        super().__init__()
        if light:
            self.body: nn.Module = nn.Sequential(
                ConvNorm(2 * width, width, 1, activation=nn.ReLU6), SeparableConv(width, width, 5)
            )
        else:
            self.body = nn.Sequential(
                ConvNorm(2 * width, width, 1), ConvNorm(width, width), ConvNorm(width, width)
            )

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        mixed: Tensor = self.body(torch.cat([one, other], 1))
        return mixed


class FeaturePyramid(nn.Module):
    """Top-down, then bottom-up; every level leaves with `width` channels."""

    def __init__(self, levels: Sequence[FeatureLevel], width: int, *, light: bool = False) -> None:
        super().__init__()
        activation = nn.ReLU6 if light else nn.SiLU
        self.laterals = nn.ModuleList(
            ConvNorm(level.channels, width, 1, activation=activation) for level in levels
        )
        steps = len(levels) - 1
        self.down = nn.ModuleList(PyramidMixer(width, light=light) for _ in range(steps))
        self.up = nn.ModuleList(PyramidMixer(width, light=light) for _ in range(steps))
        self.strides = nn.ModuleList(
            SeparableConv(width, width, 3, 2) if light else ConvNorm(width, width, 3, 2) for _ in range(steps)
        )

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        found = [lateral(one) for lateral, one in zip(self.laterals, maps, strict=True)]
        for place in range(len(found) - 2, -1, -1):
            above = functional.interpolate(found[place + 1], size=found[place].shape[-2:], mode="nearest")
            found[place] = self.down[place](found[place], above)
        for place in range(1, len(found)):
            below = self.strides[place - 1](found[place - 1])
            found[place] = self.up[place - 1](found[place], below)
        return found
