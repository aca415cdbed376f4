"""ResNet-18 and ResNet-50, the strides in the 3 x 3 convolutions as is usual today."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from weft.vision.models.layers import Backbone, ConvNorm, FeatureLevel


class ResidualBlock(nn.Module):
    """Two convolutions of 3 x 3, or with a bottleneck 1 x 1, 3 x 3, 1 x 1, around which the input is added."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        outputs = width * 4 if bottleneck else width
        self.convs = (
            nn.Sequential(
                _conv(inputs, width, 1),
                _conv(width, width, 3, stride),
                _conv(width, outputs, 1, activation=None),
            )
            if bottleneck
            else nn.Sequential(_conv(inputs, width, 3, stride), _conv(width, outputs, 3, activation=None))
        )
        last: Any = self.convs[-1]
        last = last[1]
        nn.init.zeros_(last.weight)  # a block begins as the identity
        changed = stride != 1 or inputs != outputs
        self.shortcut = _conv(inputs, outputs, 1, stride, activation=None) if changed else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.convs(x) + self.shortcut(x)).relu()
        return out


def _conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, activation: type[nn.Module] | None = nn.ReLU
) -> ConvNorm:
    return ConvNorm(inputs, outputs, kernel, stride, activation=activation, momentum=0.1, eps=1e-5)


class ResNet(Backbone):
    """Four stages of residual blocks after a stem of stride 4."""

    def __init__(self, blocks: tuple[int, ...], *, bottleneck: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.parts = nn.ModuleList()
        inputs, found = 64, []
        for place, count in enumerate(blocks):
            width, stage = 64 << place, nn.Sequential()
            for number in range(count):
                stride = 2 if place and number == 0 else 1
                stage.append(ResidualBlock(inputs, width, stride, bottleneck=bottleneck))
                inputs = width * 4 if bottleneck else width
            self.parts.append(stage)
            found.append(FeatureLevel(inputs, 4 << place))
        self.levels, self.width = tuple(found[1:]), inputs

    def forward(self, pictures: Tensor) -> list[Tensor]:
        x, found = self.stem(pictures), []
        for part in self.parts:
            x = part(x)
            found.append(x)
        return found[1:]

    def stages(self) -> list[nn.Module]:
        return [self.stem, *(block for part in self.parts for block in part.children())]


def resnet18() -> ResNet:
    return ResNet((2, 2, 2, 2), bottleneck=False)


def resnet50() -> ResNet:
    return ResNet((3, 4, 6, 3), bottleneck=True)
