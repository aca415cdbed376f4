"""A worker that trains models as users bring them in every sharding way, and compares them with one process."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import weft
from weft.errors import UsageError
from weft.parallel import Way, apply

STEPS = 3
CLIPPED_AT = 0.5  # norm of all gradients


class Tied(nn.Module):
    """A head that has the weight of the embedding, and blocks between them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = self.embedding(tokens)
        for block in self.blocks:
            rows = torch.tanh(block(rows))
        result: torch.Tensor = self.head(rows)
        return result


class OneBlock(Tied):
    """One block that stands in the model under several names, as in ALBERT."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([self.blocks[0]] * 3)


class Frozen(Tied):
    """Layers that do not train, one of them in part, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding.weight.requires_grad_(False)
        self.head = nn.Linear(8, 12)
        self.blocks[1].requires_grad_(False)
        self.blocks[2].bias.requires_grad_(False)
        self.register_buffer("shift", torch.ones(8))


def make(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def tokens(rank: int, step: int) -> torch.Tensor:
    return torch.randint(0, 12, (4, 5), generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean() + output[0].logsumexp(-1).mean()


def training(net: nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Return an optimizer of two groups with a schedule, made before a plan is applied."""
    trained = [one for one in net.parameters() if one.requires_grad]
    groups = [
        {"params": [one for one in trained if one.dim() > 1], "weight_decay": 0.1},
        {"params": [one for one in trained if one.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, 0.01)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)


def alone(net: nn.Module, world: int) -> list[torch.Tensor]:
    optimizer, schedule = training(net)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world):
            (loss_of(net(tokens(rank, step))) / world).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(net.parameters(), CLIPPED_AT)
        optimizer.step()
        schedule.step()
    return [one.detach() for one in net.parameters()]


def together(net: nn.Module, way: Way) -> list[torch.Tensor]:
    optimizer, schedule = training(net)
    model, optimizer = apply(net, optimizer, way)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(tokens(dist.get_rank(), step))).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIPPED_AT)
        optimizer.step()
        schedule.step()
    return [
        one.full_tensor().detach() if isinstance(one, DTensor) else one.detach() for one in model.parameters()
    ]


def refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        call()
    if dist.get_rank() == 0:
        print("refused:", error.value, flush=True)


def refusals() -> None:
    sharded = Way(kind="fsdp")
    net = make(Tied)
    other = torch.optim.SGD([*net.parameters(), nn.Parameter(torch.zeros(2))], 0.1)
    refused(lambda: apply(net, other, sharded), "of the model alone")
    assert not any(isinstance(one, DTensor) for one in net.parameters())
    mixed = make(Tied)
    mixed.get_submodule("blocks.1").bias.data = torch.zeros(8, dtype=torch.bfloat16)
    refused(
        lambda: apply(mixed, torch.optim.SGD(mixed.parameters(), 0.1), sharded), "of one type to be sharded"
    )
    wrapped = nn.parallel.DistributedDataParallel(make(Tied))
    refused(lambda: apply(wrapped, torch.optim.SGD(wrapped.parameters(), 0.1), sharded), "not be wrapped")
    nothing = nn.ReLU()
    refused(lambda: apply(nothing, torch.optim.SGD(net.parameters(), 0.1), Way()), "must have parameters")


def main() -> None:
    weft.init()
    for kind in (Tied, OneBlock, Frozen):
        expected = alone(make(kind), dist.get_world_size())
        for way in (Way(), Way(kind="fsdp"), Way(kind="fsdp-keep", prefetch=2), Way(kind="zero1")):
            found = together(copy.deepcopy(make(kind)), way)
            worst = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
            assert worst < 2e-6, (kind.__name__, str(way), worst)
            if dist.get_rank() == 0:
                print("same:", kind.__name__, way, flush=True)
    refusals()
    weft.shutdown()


main()
