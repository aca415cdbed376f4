"""Ranks that call different things: with WEFT_DEBUG all are told of both sides, without it no memory is harmed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("weft", timeout=timedelta(seconds=60))
rank, odd = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
debug = os.environ.get("WEFT_DEBUG") == "1"
Group = dist.ProcessGroup
GUARD = 1 << 16


def guarded(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor in the middle of memory that nobody else may touch."""
    whole = torch.full((count + 2 * GUARD,), 7, dtype=dtype)
    wholes.append((whole, count))
    return whole[GUARD : GUARD + count]


def gathered(group: Group, count: int) -> None:
    dist.all_gather([guarded(count) for _ in range(dist.get_world_size())], guarded(count), group=group)


def order(group: Group) -> None:
    calls = [
        lambda: dist.all_reduce(guarded(5), group=group),
        lambda: dist.broadcast(guarded(5), 0, group=group),
    ]
    for call in reversed(calls) if odd else calls:
        call()


wholes: list[tuple[torch.Tensor, int]] = []
MAX, SUM = dist.ReduceOp.MAX, dist.ReduceOp.SUM
CASES: dict[str, tuple[Callable[[Group], object], list[str]]] = {
    "shapes": (
        lambda group: dist.all_reduce(guarded(40_000 if odd else 30_000), group=group),
        ["all_reduce(float32[30000], SUM)", "all_reduce(float32[40000], SUM)"],
    ),
    "large and small": (
        lambda group: dist.all_reduce(guarded(3_000_000 if odd else 30), group=group),
        ["float32[30]", "float32[3000000]"],
    ),
    "types": (
        lambda group: dist.all_reduce(guarded(9, torch.float64 if odd else torch.float32), group=group),
        ["float32[9]", "float64[9]"],
    ),
    "operators": (
        lambda group: dist.all_reduce(guarded(9), MAX if odd else SUM, group=group),
        ["float32[9], SUM", "float32[9], MAX"],
    ),
    "roots": (
        lambda group: dist.broadcast(guarded(9), 1 if odd else 0, group=group),
        ["from 0", "from 1"],
    ),
    "order": (order, ["all_reduce(float32[5], SUM)", "broadcast(float32[5], from 0)"]),
    "gathers": (
        lambda group: gathered(group, 90_000 if odd else 20_000),
        ["float32[20000]", "float32[90000]"],
    ),
}
failures = []
for name, (case, words) in CASES.items():
    group = dist.new_group(timeout=timedelta(seconds=30 if debug else 1))
    wholes.clear()
    try:
        case(group)
        told = ""
    except RuntimeError as error:
        told = f"{type(error).__name__}: {error}"
    for whole, count in wholes:
        if not (whole[:GUARD].eq(7).all() and whole[GUARD + count :].eq(7).all()):
            failures.append(f"{name}: memory beside a tensor was written")
    if debug and not all(word in told for word in ("MismatchError", *words, "rank 0 on", "as call 1")):
        failures.append(f"{name}: must name both sides, told {told!r}")
    dist.barrier()
    dist.destroy_process_group(group)
for failure in failures:
    print(f"FAILED {failure}", flush=True)
sys.exit(bool(failures))
