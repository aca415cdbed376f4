"""A worker that trains a net in every way, and compares it with the same training in one process."""

from __future__ import annotations

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import weft
from weft.parallel import Way, apply, micro_batch
from weft.parallel.applying import groups
from weft.parallel.prediction.way import Kind

STEPS, PASSES, ROWS = 3, 2, 4
_KINDS: tuple[Kind, ...] = ("fsdp", "fsdp-keep", "hsdp")


class Net(nn.Module):
    """Blocks between two edges, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 10)
        self.blocks = nn.ModuleList(nn.Linear(10, 10) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows = self.first(rows)
        for block in self.blocks:
            rows = torch.tanh(block(rows))
        return rows * self.scale


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def batches(rank: int, step: int, like: nn.Module) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(1000 * step + rank)
    dtype = next(like.parameters()).dtype
    return [torch.randn(ROWS, 6, generator=source).to(dtype) for _ in range(PASSES)]


def trained_alone(net: nn.Module, world: int) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world):
            for rows in batches(rank, step, net):
                (loss_of(net(rows)) / world).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return [one.detach() for one in net.parameters()]


def trained_together(net: nn.Module, way: Way) -> list[torch.Tensor]:
    model, optimizer = apply(net, torch.optim.AdamW(net.parameters(), 0.01), way)
    for step in range(STEPS):
        optimizer.zero_grad()
        for number, rows in enumerate(batches(dist.get_rank(), step, net)):
            with micro_batch(model, last=number == PASSES - 1):
                loss_of(model(rows)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return [
        one.full_tensor().detach() if isinstance(one, DTensor) else one.detach() for one in model.parameters()
    ]


def main() -> None:
    weft.init()
    world = dist.get_world_size()
    if sys.argv[1:] == [
        "two-hosts"
    ]:  # as if ranks were on two hosts: what goes across them goes by groups of its own
        half = world // 2
        groups.hosts_of_ranks = lambda: [list(range(half)), list(range(half, world))]
    torch.manual_seed(0)
    net = Net()
    expected = {
        dtype: trained_alone(copy.deepcopy(net).to(dtype), world) for dtype in (torch.float32, torch.float64)
    }
    ways = [
        Way(),
        Way(bucket_bytes=1 << 20, sync_every_pass=True),
        Way(kind="zero1"),
        *(
            Way(kind=kind, prefetch=prefetch, sync_every_pass=every)
            for kind in _KINDS
            for prefetch, every in ((1, True), (2, False))
        ),
        Way(kind="zero2", sync_every_pass=True),
    ]
    runs = [(way, torch.float32) for way in ways]
    runs += [
        (way, torch.float64) for way in ways if way.shards and way.sync_every_pass
    ]  # whose mean is a sum
    for way, dtype in runs:
        torch.manual_seed(dist.get_rank())  # apply gives everyone rank 0's
        mine = copy.deepcopy(net).to(dtype)
        if dist.get_rank():
            with torch.no_grad():
                for one in mine.parameters():
                    one.normal_()
        found = trained_together(mine, way)
        worst = max(float((a - b).abs().max()) for a, b in zip(found, expected[dtype], strict=True))
        assert worst < 2e-6, (str(way), worst)
        if dist.get_rank() == 0:
            print("same:", way, dtype, flush=True)
    weft.shutdown()


main()
