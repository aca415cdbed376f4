"""Model families that people fine-tune and train beside plain transformers and pictures, as small modules of our own:
frozen trunks with side matrices, dropout, diffusion, routed experts, padding, graphs, scans. The benchmarks build the
same ones large. Each has `blocks`, the modules that one would checkpoint by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from testing.families import GptBlock, Transformer, heads, joined
from torch import Tensor, nn


class SideLinear(nn.Module):
    """LoRA: a frozen linear layer, and beside it two small matrices that are trained."""

    def __init__(self, frozen: nn.Linear, rank: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.frozen(x) + self.up(self.down(self.dropout(x))) * 2.0
        return result


def with_side_matrices(model: nn.Module, rank: int, dropout: float = 0.0) -> nn.Module:
    """Freeze a model, and put side matrices beside all linear layers of its blocks."""
    model.requires_grad_(False)
    blocks: Any = model.blocks
    for module in list(blocks.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, SideLinear(child, rank, dropout))
    return model


class Adapted(nn.Module):
    """A frozen block and a small bottleneck after it, which is trained."""

    def __init__(self, block: nn.Module, width: int, narrow: int) -> None:
        super().__init__()
        self.block = block.requires_grad_(False)
        self.down, self.up = nn.Linear(width, narrow), nn.Linear(narrow, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(x)
        result: Tensor = x + self.up(F.relu(self.down(x)))
        return result


class EncoderDecoder(nn.Module):
    """torch's own layers of a transformer, with their dropouts; the decoder reads the same batch."""

    def __init__(self, width: int, count: int, layers: int, dropout: float = 0.1) -> None:
        super().__init__()
        given: dict[str, Any] = {"dropout": dropout, "batch_first": True}
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, count, 4 * width, **given) for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(width, count, 4 * width, **given) for _ in range(layers)
        )
        self.blocks = [*self.encoder, *self.decoder]

    def forward(self, x: Tensor) -> Tensor:
        memory, y = x, x.flip(1)
        for encoder in self.encoder:
            memory = encoder(memory)
        for decoder in self.decoder:
            y = decoder(y, memory)
        return y


class DiffusionBlock(nn.Module):
    """Two convolutions after group norms and SiLU, with the time between them; attention by the plain formula."""

    def __init__(self, inside: int, outside: int, time: int, attends: bool) -> None:
        super().__init__()
        groups = min(8, inside // 4)
        self.norm1, self.conv1 = nn.GroupNorm(groups, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.norm2, self.conv2 = nn.GroupNorm(groups, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()
        self.norm3 = nn.GroupNorm(groups, outside) if attends else None
        self.qkv, self.out = nn.Conv2d(outside, 3 * outside, 1), nn.Conv2d(outside, outside, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        x = self.skip(x) + self.conv2(F.silu(self.norm2(inner)))
        if self.norm3 is None:
            return x
        q, k, v = (
            part.unflatten(1, (4, -1)).flatten(3).transpose(2, 3)
            for part in self.qkv(self.norm3(x)).chunk(3, 1)
        )
        mixed = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).softmax(-1) @ v
        result: Tensor = x + self.out(mixed.transpose(2, 3).reshape(x.shape))
        return result


class DiffusionUNet(nn.Module):
    """The U-Net of a diffusion model; `deep` blocks a level, attention in the lower levels."""

    def __init__(self, widths: tuple[int, ...], deep: int = 2, time: int = 32, inside: int = 4) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(inside, widths[0], 3, padding=1)
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        width, skips = widths[0], [widths[0]]
        for level, wide in enumerate(widths):
            for _ in range(deep):
                self.downs.append(DiffusionBlock(width, wide, time, attends=level > 0))
                width = wide
                skips.append(width)
        for level, wide in reversed(list(enumerate(widths))):
            for _ in range(deep):
                self.ups.append(DiffusionBlock(width + skips.pop(), wide, time, attends=level > 0))
                width = wide
        self.last = nn.Conv2d(width, inside, 3, padding=1)
        self.deep, self.blocks = deep, [*self.downs, *self.ups]

    def forward(self, x: Tensor) -> Tensor:
        time = self.time(x.mean((1, 2, 3))[:, None].detach())
        x = self.first(x)
        skips = [x]
        for place, down in enumerate(self.downs):
            x = down(F.avg_pool2d(x, 2) if place and place % self.deep == 0 else x, time)
            skips.append(x)
        for place, up in enumerate(self.ups):
            if place and place % self.deep == 0:
                x = F.interpolate(x, scale_factor=2.0)
            x = up(torch.cat((x, skips.pop()), 1), time)
        result: Tensor = self.last(x)
        return result


class RoutedBlock(nn.Module):
    """Attention, then one expert for each token: which one, and so how many tokens each gets, follows the data."""

    def __init__(self, width: int, count: int, experts: int) -> None:
        super().__init__()
        self.count = count
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads(part, self.count) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        tokens = self.norm2(x).flatten(0, 1)
        weight, chosen = self.router(tokens).softmax(-1).max(-1)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                result[rows] = expert(tokens[rows]) * weight[rows, None]
        return x + result.view_as(x)


class PaddedEncoder(nn.Module):
    """BERT's encoder with a mask of padding, attention with dropout by the plain formula."""

    def __init__(self, width: int, count: int, layers: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            GptBlock(width, count, dropout, causal=False, post=True) for _ in range(layers)
        )
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        kept = torch.arange(length, device=x.device)[None] < (
            length - torch.arange(x.shape[0], device=x.device)[:, None]
        )
        mask = torch.zeros_like(kept, dtype=x.dtype).masked_fill(~kept, -1e9)[:, None, None]
        for block in self.blocks:
            assert isinstance(block, GptBlock)
            q, k, v = (heads(part, self.count) for part in block.qkv(x).chunk(3, -1))
            shares = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + mask).softmax(-1)
            mixed = block.out(joined(block.dropout(shares) @ v))
            x = block.norm1(x + block.dropout(mixed))
            x = block.norm2(x + block.feed(x))
        return x


class ConvNextBlock(nn.Module):
    """A wide convolution of each channel by itself, two linear layers, a scale, and a path dropped at random."""

    def __init__(self, width: int, dropped: float = 0.2) -> None:
        super().__init__()
        self.wide = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.scale, self.dropped = nn.Parameter(torch.full((width,), 0.1)), dropped

    def forward(self, x: Tensor) -> Tensor:
        inner = self.down(F.gelu(self.up(self.norm(self.wide(x).permute(0, 2, 3, 1))))) * self.scale
        kept = torch.rand(x.shape[0], 1, 1, 1, device=x.device) >= self.dropped
        result: Tensor = x + inner.permute(0, 3, 1, 2) * kept / (1 - self.dropped)
        return result


class GraphBlock(nn.Module):
    """Messages along edges, added up at their ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.norm = nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        told = F.silu(self.message(torch.cat((x[edges[0]], x[edges[1]]), -1)))
        result: Tensor = x + self.norm(torch.zeros_like(x).index_add(0, edges[1], told))
        return result


class GraphNet(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(GraphBlock(width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        ends = torch.arange(4 * count, device=x.device)
        edges = torch.stack((ends % count, (ends * 7 + 3) % count))
        for block in self.blocks:
            x = block(x, edges)
        return x


class ScanBlock(nn.Module):
    """A state that decays from token to token, as in a state-space model; written into one tensor piece by piece."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inside, self.outside = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        decay, value = self.inside(self.norm(x)).chunk(2, -1)
        decay = torch.sigmoid(decay)
        state, states = torch.zeros_like(value[:, 0]), []
        for place in range(x.shape[1]):
            state = decay[:, place] * state + (1 - decay[:, place]) * value[:, place]
            states.append(state)
        result: Tensor = x + self.outside(torch.stack(states, 1))
        return result


Family = tuple[Callable[[], nn.Module], Callable[[], Tensor]]

TUNED_FAMILIES: dict[str, Family] = {
    "lora": (
        lambda: with_side_matrices(Transformer(6, lambda: GptBlock(64, 4), 64), 4, 0.1),
        lambda: torch.randn(4, 64, 64),
    ),
    "adapters": (
        lambda: Transformer(6, lambda: Adapted(GptBlock(64, 4), 64, 8), 64),
        lambda: torch.randn(4, 64, 64),
    ),
    "encoder-decoder": (lambda: EncoderDecoder(64, 4, 3), lambda: torch.randn(4, 64, 64)),
    "diffusion": (lambda: DiffusionUNet((16, 32), 2), lambda: torch.randn(2, 4, 32, 32)),
    "routed": (
        lambda: Transformer(6, lambda: RoutedBlock(64, 4, 4), 64),
        lambda: torch.randn(4, 64, 64),
    ),
    "padded": (lambda: PaddedEncoder(64, 4, 6), lambda: torch.randn(4, 64, 64)),
    "convnext": (
        lambda: nn.Sequential(nn.Conv2d(3, 32, 4, 4), *(ConvNextBlock(32) for _ in range(6))),
        lambda: torch.randn(4, 3, 64, 64),
    ),
    "graph": (lambda: GraphNet(32, 6), lambda: torch.randn(256, 32)),
    "scan": (lambda: Transformer(4, lambda: ScanBlock(64), 64), lambda: torch.randn(8, 16, 64)),
}
