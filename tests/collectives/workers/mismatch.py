"""The last rank brings more, or less, than the others: everyone must be told, and nobody's process may end of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("weft", timeout=timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
odd = rank == size - 1
debug = os.environ.get("WEFT_DEBUG") == "1"
Group = dist.ProcessGroup
_all_gather: Callable[..., object] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter: Callable[..., object] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def ones(count: int) -> list[torch.Tensor]:
    return [torch.ones(count) for _ in range(size)]


def all_to_all(group: Group, count: int) -> None:
    dist.all_to_all_single(torch.ones(count * size), torch.ones(count * size), group=group)


def gather(group: Group, count: int) -> None:
    dist.gather(torch.ones(count), ones(count) if rank == 0 else None, 0, group=group)


def scatter(group: Group, count: int) -> None:
    dist.scatter(torch.ones(count), ones(count) if rank == 0 else None, 0, group=group)


def point_to_point(group: Group, count: int) -> None:
    if rank == 0:
        dist.send(torch.ones(count), size - 1, group=group)
    elif odd:
        dist.recv(torch.ones(count), 0, group=group)


def order(group: Group, count: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: gather(group, 7),
        lambda: dist.all_reduce(torch.ones(7), group=group),
    ]
    for call in calls if odd else calls[::-1]:
        call()


CASES: dict[str, Callable[[Group, int], object]] = {
    "all_reduce": lambda group, count: dist.all_reduce(torch.ones(count), group=group),
    "reduce": lambda group, count: dist.reduce(torch.ones(count), 0, group=group),
    "broadcast": lambda group, count: dist.broadcast(torch.ones(count), 0, group=group),
    "all_gather": lambda group, count: _all_gather(torch.ones(count * size), torch.ones(count), group=group),
    "reduce_scatter": lambda group, count: _reduce_scatter(
        torch.ones(count), torch.ones(count * size), group=group
    ),
    "all_to_all": all_to_all,
    "gather": gather,
    "scatter": scatter,
    "send and recv": point_to_point,
    "order": order,
}


def _untouched(name: str) -> bool:
    """Who has no part in it, or has what the root sent, has nothing that could be wrong."""
    if name == "send and recv":
        return rank not in (0, size - 1)
    return name == "broadcast" and not odd and not debug


def _names_both(told: str) -> bool:
    return told.startswith("MismatchError") and all(f"{verb}(float32" in told for verb in ("send", "recv"))


failures = []
for name, case in CASES.items():
    for usual, unusual in ((500, 4000), (500_000, 20_000)):
        patience = 8 if name == "send and recv" else 20  # to make the group, too, on a busy machine
        group = dist.new_group(timeout=timedelta(seconds=patience))
        try:
            case(group, unusual if odd else usual)
            told = ""
        except RuntimeError as error:
            told = f"{type(error).__name__}: {error}"
        if not told and not _untouched(name):
            failures.append(f"{name} {usual} {unusual}: must be told, got nothing")
        both = ("all ranks must make the same calls", "on rank 0 on", f"rank {size - 1} on")
        if debug and name not in ("send and recv", "all_to_all") and not all(word in told for word in both):
            failures.append(f"{name} {usual} {unusual}: must name both sides, got {told}")
        if debug and odd and name == "send and recv" and not _names_both(told):
            failures.append(f"{name} {usual} {unusual}: must name both sides, got {told}")
        if told and not told.startswith(("MismatchError", "PeerError")):
            failures.append(f"{name} {usual} {unusual}: must be a mismatch, got {told}")
        print(f"case {name} {usual} {unusual}: {told}", flush=True)
        dist.barrier()
        dist.destroy_process_group(group)
        if name == "order":
            break
for failure in failures:
    print(f"FAILED {failure}", flush=True)
sys.exit(bool(failures))
