"""Layers that several networks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of pixels of 0..1
IMAGENET_STD = (0.229, 0.224, 0.225)


class FeatureLevel(NamedTuple):
    """One resolution of a backbone's feature maps."""

    channels: int
    stride: int  # pixels of the picture per cell


class PixelScale(nn.Module):
    """Scales pixels of 0..255 to (pixel / 255 - mean) / std, by channel."""

    offset: Tensor
    factor: Tensor

    def __init__(self, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> None:
        super().__init__()
        factor = torch.tensor([1 / (255 * one) for one in std])
        offset = torch.tensor([-centre / one for centre, one in zip(mean, std, strict=True)])
        self.register_buffer("factor", factor.view(1, -1, 1, 1), persistent=False)
        self.register_buffer("offset", offset.view(1, -1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.addcmul(self.offset, pixels.to(self.factor.dtype), self.factor)


class ConvNorm(nn.Sequential):
    """Convolution, batch norm, and an activation where one is given."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        groups: int = 1,
        activation: type[nn.Module] | None = nn.SiLU,
        momentum: float = 0.03,
        eps: float = 1e-3,
    ) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs, eps=eps, momentum=momentum),
        )
        if activation is not None:
            self.append(activation())


class SeparableConv(nn.Sequential):
    """A depthwise convolution, then one of 1 x 1: a ninth of the arithmetic of a full one."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        activation: type[nn.Module] = nn.ReLU6,
    ) -> None:
        super().__init__(
            ConvNorm(inputs, inputs, kernel, stride, groups=inputs, activation=activation),
            ConvNorm(inputs, outputs, 1, activation=activation),
        )


class Backbone(nn.Module):
    """A network that turns scaled pictures into feature maps, finest first; the root of all backbones."""

    levels: tuple[FeatureLevel, ...]  # of what `forward` returns
    width: int  # of the vector that `pooled` returns

    def forward(self, pictures: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def pooled(self, pictures: Tensor) -> Tensor:
        """Return one vector a picture, for a classifier's last layer."""
        return self.forward(pictures)[-1].mean((2, 3))

    def stages(self) -> list[nn.Module]:
        """Return the parts from the input to the output, for rates that fall with depth and for freezing."""
        raise NotImplementedError
