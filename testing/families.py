"""The model families of the issue as small hand-written modules; the benchmarks build the same ones large."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


def heads(x: Tensor, count: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class GptBlock(nn.Module):
    """GPT-2's: norm first, biases, GELU, causal; with `causal=False` and `post=True` it is BERT's."""

    def __init__(
        self, width: int, count: int, dropout: float = 0.0, causal: bool = True, post: bool = False
    ) -> None:
        super().__init__()
        self.count, self.causal, self.post = count, causal, post
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (heads(part, self.count) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        result: Tensor = self.dropout(self.out(joined(mixed)))
        return result

    def feed(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(self.down(F.gelu(self.up(x))))
        return result

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            x = self.norm1(x + self.attend(x))
            result: Tensor = self.norm2(x + self.feed(x))
            return result
        x = x + self.attend(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Transformer(nn.Module):
    """Tokens in, logits out; without a vocabulary, vectors in and out."""

    def __init__(self, layers: int, make: Callable[[], nn.Module], width: int, vocabulary: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width) if vocabulary else None
        self.blocks = nn.ModuleList([make() for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False) if vocabulary else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        result: Tensor = x if self.head is None else self.head(x)
        return result


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class LlamaBlock(nn.Module):
    """Llama's: RMS norms, rotary positions, grouped heads, SwiGLU, no biases."""

    def __init__(self, width: int, count: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.count, self.groups, self.size = count, groups, width // count
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        q, k = heads(self.q(normed), self.count), heads(self.k(normed), self.groups)
        v = heads(self.v(normed), self.groups)
        place = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        rate = 1e4 ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angle = torch.outer(place, rate).repeat(1, 2)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups != self.count)
        x = x + self.o(joined(mixed))
        normed = self.norm2(x)
        result: Tensor = x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return result


class WindowBlock(nn.Module):
    """Swin's: attention within windows of a picture, shifted by half of one."""

    def __init__(self, width: int, count: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.block = GptBlock(width, count, causal=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, high, wide, width = x.shape
        w = self.window
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        parts = x.view(batch, high // w, w, wide // w, w, width).transpose(2, 3).reshape(-1, w * w, width)
        parts = self.block(parts)
        x = (
            parts.view(batch, high // w, wide // w, w, w, width)
            .transpose(2, 3)
            .reshape(batch, high, wide, width)
        )
        return torch.roll(x, (self.shift, self.shift), (1, 2))


class Swin(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*(WindowBlock(width, 4, 4, 2 * (index % 2)) for index in range(layers)))
        self.merge = nn.Linear(4 * width, 2 * width)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patch(x).permute(0, 2, 3, 1))
        corners = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
        result: Tensor = self.head(self.merge(torch.cat(corners, -1)).mean((1, 2)))
        return result


class Vit(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, stride=8)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.Sequential(*(GptBlock(width, 4, causal=False) for _ in range(layers)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1)
        result: Tensor = self.head(self.blocks(x)[:, 0])
        return result


class Bottleneck(nn.Module):
    """ResNet's, with in-place ReLUs."""

    def __init__(self, inside: int, width: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, dilation, dilation, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        short = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.short = short if stride > 1 or inside != 4 * width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x), inplace=True)


class ResNet(nn.Module):
    """ResNet-50 is `(3, 4, 6, 3)` at width 64."""

    def __init__(self, width: int, stages: tuple[int, ...], classes: int = 10, dilate: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        inside = width
        for stage, count in enumerate(stages):
            outside = width << stage
            late = dilate and stage >= 2  # DeepLab's backbone keeps its resolution, and looks wider
            for index in range(count):
                stride = 2 if stage and not index and not late else 1
                blocks.append(Bottleneck(inside, outside, stride, 2 if late else 1))
                inside = 4 * outside
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inside, classes)

    def features(self, x: Tensor) -> Tensor:
        result: Tensor = self.blocks(self.stem(x))
        return result

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.features(x).mean((2, 3)))
        return result


class DenseLayer(nn.Module):
    """Takes all that the layers before it gave, and gives a few channels more."""

    def __init__(self, given: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(given), nn.Conv2d(given, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, given: list[Tensor]) -> Tensor:
        x = self.conv1(self.relu(self.norm1(torch.cat(given, 1))))
        result: Tensor = self.conv2(self.relu(self.norm2(x)))
        return result


class DenseNet(nn.Module):
    """DenseNet-201 has growth 32, blocks of 6, 12, 48 and 32 layers."""

    def __init__(self, growth: int, blocks: tuple[int, ...], classes: int = 10) -> None:
        super().__init__()
        width = 2 * growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks, self.between = nn.ModuleList(), nn.ModuleList()
        for count in blocks:
            layers = (DenseLayer(width + layer * growth, growth) for layer in range(count))
            self.blocks.append(nn.ModuleList(layers))
            width += count * growth
            last = len(self.blocks) == len(blocks)
            norm = (nn.BatchNorm2d(width), nn.ReLU(inplace=True))
            narrow = () if last else (nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2, 2))
            self.between.append(nn.Sequential(*norm, *narrow))
            width = width if last else width // 2
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        layers: Any
        for layers, between in zip(self.blocks, self.between, strict=True):
            given = [x]
            for layer in layers:
                given.append(layer(given))
            x = between(torch.cat(given, 1))
        result: Tensor = self.head(x.mean((2, 3)))
        return result


class DeepLab(nn.Module):
    """DeepLabV3's head, its branches dilated, on a dilated ResNet."""

    def __init__(self, width: int, stages: tuple[int, ...], classes: int = 5) -> None:
        super().__init__()
        self.backbone = ResNet(width, stages, dilate=True)
        inside = width << (len(stages) + 1)
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(inside, width, 3, 1, rate, rate, bias=False), nn.BatchNorm2d(width), nn.ReLU()
            )
            for rate in (1, 2, 3)
        )
        self.last = nn.Conv2d(3 * width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.backbone.features(x)
        found = self.last(torch.cat([branch(found) for branch in self.branches], dim=1))
        return F.interpolate(found, size=x.shape[-2:], mode="bilinear")


class Double(nn.Sequential):
    """Two 3D convolutions with instance norms and leaky ReLUs."""

    def __init__(self, inside: int, outside: int, inplace: bool) -> None:
        super().__init__(
            nn.Conv3d(inside, outside, 3, padding=1),
            nn.InstanceNorm3d(outside, affine=True),
            nn.LeakyReLU(0.01, inplace),
            nn.Conv3d(outside, outside, 3, padding=1),
            nn.InstanceNorm3d(outside, affine=True),
            nn.LeakyReLU(0.01, inplace),
        )


class UNet3d(nn.Module):
    def __init__(self, inside: int, widths: tuple[int, ...], classes: int = 3, inplace: bool = True) -> None:
        super().__init__()
        self.downs = nn.ModuleList(
            Double(before, after, inplace) for before, after in zip((inside, *widths), widths, strict=False)
        )
        pairs = list(pairwise(widths))[::-1]
        self.rises = nn.ModuleList(nn.ConvTranspose3d(low, high, 2, stride=2) for high, low in pairs)
        self.ups = nn.ModuleList(Double(2 * high, high, inplace) for high, _ in pairs)
        self.last = nn.Conv3d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for index, down in enumerate(self.downs):
            x = down(F.max_pool3d(x, 2) if index else x)
            kept.append(x)
        for rise, up, skip in zip(self.rises, self.ups, kept[-2::-1], strict=True):
            x = up(torch.cat((skip, rise(x)), dim=1))
        result: Tensor = self.last(x)
        return result


class Lstm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.LSTM(width, width, num_layers=4, batch_first=True)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(x)[0])
        return result


class Experts(nn.Module):
    """A mixture: each token goes to the two experts that its router likes best."""

    def __init__(self, width: int, count: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x).flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(2, dim=-1)
        result = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == index)
            result = result.index_add(0, rows, expert(tokens[rows]) * weights[rows, place, None])
        return x + result.view_as(x)


Family = tuple[Callable[[], nn.Module], Callable[[], Tensor]]

FAMILIES: dict[str, Family] = {
    "gpt2": (
        lambda: Transformer(3, lambda: GptBlock(32, 4), 32, vocabulary=100),
        lambda: torch.randint(100, (4, 64)),
    ),
    "bert": (
        lambda: Transformer(3, lambda: GptBlock(32, 4, causal=False, post=True), 32, vocabulary=100),
        lambda: torch.randint(100, (4, 64)),
    ),
    "llama": (
        lambda: Transformer(3, lambda: LlamaBlock(32, 4, 2, 96), 32, vocabulary=100),
        lambda: torch.randint(100, (4, 64)),
    ),
    "vit": (lambda: Vit(32, 3), lambda: torch.randn(4, 3, 64, 64)),
    "swin": (lambda: Swin(32, 2), lambda: torch.randn(4, 3, 64, 64)),
    "resnet": (lambda: ResNet(8, (2, 2, 2)), lambda: torch.randn(4, 3, 64, 64)),
    "densenet": (lambda: DenseNet(4, (4, 6, 4)), lambda: torch.randn(4, 3, 64, 64)),
    "deeplab": (lambda: DeepLab(8, (1, 1, 2)), lambda: torch.randn(4, 3, 64, 64)),
    "unet3d": (lambda: UNet3d(2, (8, 16, 32)), lambda: torch.randn(1, 2, 16, 16, 16)),
    "lstm": (lambda: Lstm(32), lambda: torch.randn(8, 64, 32)),
    "experts": (lambda: nn.Sequential(*(Experts(32) for _ in range(3))), lambda: torch.randn(8, 64, 32)),
}
