"""Budgets on two ranks, each with a simulated device of its own: what is trained is what natively would be, bit by bit.

Arguments are the backend and the way to share a model. A case that fails ends its rank, and the launcher the other one.
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from testing.families import GptBlock, Transformer
from tests.lms.stage import back
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import weft.lms.api
from weft import lms
from weft.errors import UsageError
from weft.lms.device.simulated import SimulatedTransfer

WIDTH, BATCH, LARGE, STEPS, MICRO = 64, 2, 8, 3, 2
FAST, SLOW = 1e12, 1e6  # links
BACKEND_BYTES = 32 << 20  # what is larger is the backend's shared memory, which no device has

torch.set_num_threads(1)
warnings.filterwarnings("ignore", "It is recommended to pass")
dist.init_process_group(sys.argv[1], timeout=timedelta(seconds=60))
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
x = torch.randn(LARGE, 32, WIDTH, generator=torch.Generator().manual_seed(1 + rank))


class Net(Transformer):
    """With statistics that every rank must agree on, and with blocks that may be checkpointed."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(6, lambda: GptBlock(WIDTH, 4), WIDTH)
        self.counted = nn.BatchNorm1d(32)
        self.recomputes = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.counted(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)
        result: Tensor = self.norm(x)
        return result


Way = Callable[[Any], Any]


def ddp(net: nn.Module) -> Any:
    """With buckets so small that several are under way at once."""
    return DistributedDataParallel(net, bucket_cap_mb=0.05, gradient_as_bucket_view=True)


def fsdp(net: Any) -> Any:
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def part(tensor: Any) -> Tensor:
    found: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return found.detach()


SIZE = sum(parameter.nbytes for parameter in Net().parameters())


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-3)


def device(link: float = 1e9) -> SimulatedTransfer:
    transfer = SimulatedTransfer(link=link)
    count = transfer._arena.count
    transfer._arena.count = lambda tensor: (  # type: ignore[method-assign]
        None if tensor.untyped_storage().nbytes() >= BACKEND_BYTES else count(tensor)
    )
    transfer.adopt(x)
    return transfer


def made(way: Way, transfer: SimulatedTransfer | None = None) -> Any:
    """A model that has made a step: with the second one torch has its buckets where they stay."""
    with nullcontext() if transfer is None else transfer.watching():
        model = way(Net())
        for _ in range(2):
            back(model(x[:BATCH]).square().mean())
        model.zero_grad(set_to_none=True)
    return model


def trained(
    model: Any,
    optimizer: Any,
    batch: int = BATCH,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> list[Tensor]:
    """Gradients, parameters and buffers of this rank."""
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for micro in range(MICRO):
            alone = batch == LARGE and micro == 0 and hasattr(model, "no_sync")
            with around(), model.no_sync() if alone else nullcontext():
                back(model(x[:batch] * (1 + step + micro)).square().mean())
        optimizer.step()
    if weft.lms.api.SESSIONS.latest is not None:
        weft.lms.api.latest().end()
    gradients = [part(parameter.grad) for parameter in model.parameters()]
    return [each.clone() for each in (*gradients, *map(part, (*model.parameters(), *model.buffers())))]


@cache
def native(way: Way, batch: int) -> list[Tensor]:
    model = made(way)
    return trained(model, adamw(model), batch)


def assert_native(found: list[Tensor], way: Way, batch: int = BATCH) -> None:
    for index, (one, two) in enumerate(zip(found, native(way, batch), strict=True)):
        assert torch.equal(one, two), index


def assert_within(limit: int, transfer: SimulatedTransfer) -> None:
    stats = lms.stats()
    assert stats["over"] == 0, stats
    assert 0 < transfer.peak() <= limit, stats


# -- both ways ---------------------------------------------------------------------------------------------------


def fits(way: Way, link: float, limit: int) -> None:
    transfer = device(link)
    model = made(way, transfer)
    found = trained(model, adamw(model), LARGE, lambda: lms.fit(limit, transfer=transfer))
    assert_native(found, way, LARGE)
    assert_within(limit, transfer)
    assert lms.plan().bytes_of("swap" if link == FAST else "recipe") > 0


def pages(way: Way, limit: int) -> torch.optim.Optimizer:
    """Optimizer state lives on the host."""
    transfer = device()
    model = made(way, transfer)
    optimizer = adamw(model)
    lms.wrap(model, optimizer, limit=limit, transfer=transfer)
    assert_native(trained(model, optimizer), way)
    assert_within(limit, transfer)
    assert lms.stats()["paged_in_bytes"] > 0
    assert transfer.pinned()[1] > 0
    return optimizer


@contextmanager
def without_room(net: Any, times: int = 1) -> Iterator[list[int]]:
    """A block runs out of memory so many times."""
    calls = [0]

    def fail(*_: object) -> None:
        calls[0] += 1
        if calls[0] <= times:
            raise torch.OutOfMemoryError("no room")

    handle = net.blocks[1].register_forward_pre_hook(fail)
    yield calls
    handle.remove()


# -- DistributedDataParallel ---------------------------------------------------------------------------------------


def inside(limit: int) -> None:
    """The model that is put under a budget is within a shared one, and recomputes its blocks."""
    transfer = device()
    model = made(ddp, transfer)
    optimizer = adamw(model)
    lms.wrap(model.module, optimizer, limit=limit, transfer=transfer)
    model.module.recomputes = True
    assert_native(trained(model, optimizer), ddp)
    assert_within(limit, transfer)
    assert lms.stats()["paged_in_bytes"] > 0


def one_rank_tries_again() -> None:
    """What all ranks do together, such as to agree on buffers, is not done again."""
    model = made(ddp)
    optimizer = adamw(model)
    lms.wrap(model, optimizer, limit=8 * SIZE, transfer=device())
    with without_room(model.module, times=2 * rank) as calls:
        assert_native(trained(model, optimizer), ddp)
    assert calls[0] == STEPS * MICRO + 2 * rank


def what_is_shared_is_not_paged(way: Way, sharing: str, limit: int) -> None:
    """A model whose gradients are paged, or its parameters, too, must not be shared afterwards."""
    net = Net()
    lms.wrap(net, adamw(net), limit=limit, transfer=device())
    model = way(net)
    told = ""
    try:
        model(x[:BATCH])
    except UsageError as error:
        told = str(error)
    assert sharing in told, told


def no_rank_repeats_a_backward_pass() -> None:
    """Others would wait for it."""
    model = made(ddp)
    optimizer = adamw(model)
    lms.wrap(model, optimizer, limit=8 * SIZE, transfer=device())
    calls = [0]

    def closure() -> float:
        calls[0] += 1
        back(model(x[:BATCH]).square().mean())
        raise torch.OutOfMemoryError("no room")

    with suppress(torch.OutOfMemoryError):
        optimizer.step(closure)
    assert calls == [1]


# -- fully_shard ---------------------------------------------------------------------------------------------------


def state_is_saved_and_loaded(optimizer: torch.optim.Optimizer) -> None:
    """In shards, from the host, and it can be looked at meanwhile."""
    saved = optimizer.state_dict()
    before = copy.deepcopy(saved)
    looked = [state["exp_avg"].square().sum().full_tensor() for state in optimizer.state.values()]
    optimizer.load_state_dict(saved)
    for key, state in optimizer.state_dict()["state"].items():
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(part(state[name]), part(before["state"][key][name])), (key, name)
            assert state[name].placements == before["state"][key][name].placements
    again = [state["exp_avg"].square().sum().full_tensor() for state in optimizer.state.values()]
    assert looked == again
    assert any(looked)


def no_rank_repeats_a_forward_pass() -> None:
    model = fsdp(Net())
    lms.wrap(model, adamw(model), limit=8 * SIZE, transfer=device())
    with without_room(model) as calls:
        with suppress(torch.OutOfMemoryError):
            model(x[:BATCH])
        assert calls == [1]


CASES: dict[str, list[Callable[[], Any]]] = {
    "ddp": [
        partial(fits, ddp, FAST, 8 * SIZE),
        partial(fits, ddp, SLOW, 8 * SIZE),
        partial(pages, ddp, 5 * SIZE),
        partial(inside, 5 * SIZE),
        one_rank_tries_again,
        partial(what_is_shared_is_not_paged, ddp, "DistributedDataParallel", 2 * SIZE),
        partial(what_is_shared_is_not_paged, ddp, "DistributedDataParallel", SIZE),
        no_rank_repeats_a_backward_pass,
    ],
    "fsdp2": [
        partial(fits, fsdp, FAST, 6 * SIZE),
        partial(fits, fsdp, SLOW, 6 * SIZE),
        lambda: state_is_saved_and_loaded(pages(fsdp, 13 * SIZE // 5)),
        partial(what_is_shared_is_not_paged, fsdp, "DTensor", 2 * SIZE),
        partial(what_is_shared_is_not_paged, fsdp, "DTensor", SIZE),
        no_rank_repeats_a_forward_pass,
    ],
}
for case in CASES[sys.argv[2]]:
    case()
dist.barrier()
print("as it should be", flush=True)
if sys.argv[1] == "gloo":
    os._exit(0)  # torch's Gloo now and then ends the process with SIGABRT when the interpreter ends
dist.destroy_process_group()
