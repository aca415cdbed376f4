"""ConvNeXt-T: depthwise convolutions of 7 x 7 and inverted bottlenecks, normalised by layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft.vision.models.layers import Backbone, FeatureLevel

_DEPTHS, _WIDTHS = (3, 3, 9, 3), (96, 192, 384, 768)


class ChannelNorm(nn.Module):
    """Layer norm over the channels of a feature map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return out


class ConvNextBlock(nn.Module):
    """A depthwise convolution of 7 x 7, then two linear layers at each place; dropped at times in training."""

    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))
        self.drop = drop  # the share of pictures for which the block is left out

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = (self.scale * self.shrink(functional.gelu(self.grow(y)))).permute(0, 3, 1, 2)
        if self.training and self.drop:
            kept = torch.rand(len(x), 1, 1, 1, device=x.device, dtype=x.dtype) >= self.drop
            y = y * kept / (1 - self.drop)
        out: Tensor = x + y
        return out


class ConvNextTiny(Backbone):
    """The network of 28 million parameters."""

    def __init__(self, drop: float = 0.1) -> None:
        super().__init__()
        self.downs, self.parts, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        done, inputs = 0, 3
        for place, (depth, width) in enumerate(zip(_DEPTHS, _WIDTHS, strict=True)):
            down = nn.Conv2d(inputs, width, 4 if place == 0 else 2, 4 if place == 0 else 2)
            order = (down, ChannelNorm(width)) if place == 0 else (ChannelNorm(inputs), down)
            self.downs.append(nn.Sequential(*order))
            rates = [drop * (done + number) / (sum(_DEPTHS) - 1) for number in range(depth)]
            self.parts.append(nn.Sequential(*(ConvNextBlock(width, rate) for rate in rates)))
            self.norms.append(ChannelNorm(width))
            done, inputs = done + depth, width
        self.levels = tuple(FeatureLevel(width, 4 << place) for place, width in enumerate(_WIDTHS))[1:]
        self.width = _WIDTHS[-1]

    def forward(self, pictures: Tensor) -> list[Tensor]:
        x, found = pictures, []
        for down, part, norm in zip(self.downs, self.parts, self.norms, strict=True):
            x = part(down(x))
            found.append(norm(x))
        return found[1:]

    def stages(self) -> list[nn.Module]:
        found: list[nn.Module] = []
        for down, part in zip(self.downs, self.parts, strict=True):
            found += [down, *part.children()]
        return found
