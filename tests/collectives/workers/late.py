"""A rank that comes too late to every operation; the others print what they were told.

    late.py RANK SECONDS

Each operation has a group of its own, since most groups are of no use afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

Group = dist.ProcessGroup
torch.set_num_threads(1)
late, limit = int(sys.argv[1]), timedelta(seconds=float(sys.argv[2]))
dist.init_process_group("weft", timeout=timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.ones(4)


def waited(group: Group) -> None:
    work: Any = dist.all_reduce(tensor, group=group, async_op=True)
    work.wait(limit)


def gathered(group: Group) -> None:
    dist.gather(tensor, [torch.ones(4) for _ in range(size)] if rank == 0 else None, 0, group=group)


WITH_THE_TIMEOUT_OF_THE_GROUP: dict[str, Callable[[Group], object]] = {
    "barrier": dist.barrier,
    "all_reduce": lambda group: dist.all_reduce(tensor, group=group),
    "broadcast": lambda group: dist.broadcast(tensor, late, group=group),
    "gather": gathered,
    "recv": lambda group: dist.recv(tensor, late, group=group),
    "monitored_barrier": lambda group: dist.monitored_barrier(group, wait_all_ranks=True),
}
WITH_THEIR_OWN: dict[str, Callable[[Group], object]] = {
    "own_barrier": lambda group: dist.barrier(group, timeout=limit),
    "own_monitored_barrier": lambda group: dist.monitored_barrier(group, limit),
    "own_wait": waited,
    "new_group": lambda _: dist.new_group(timeout=limit),
}


def told(operation: Callable[[Group], object], group: Group) -> str:
    try:
        operation(group)
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "nothing"


for name, operation in (WITH_THE_TIMEOUT_OF_THE_GROUP | WITH_THEIR_OWN).items():
    group = dist.new_group(timeout=limit if name in WITH_THE_TIMEOUT_OF_THE_GROUP else timedelta(seconds=60))
    if rank != late:
        print(f"told {name} {told(operation, group)}", flush=True)
    dist.all_gather_object([None] * size, name)  # the world is whole
    if "monitored" in name:
        if rank == late:
            print(f"told {name} {told(operation, group)}", flush=True)
        dist.all_reduce(torch.ones(4), group=group)  # which is whole too
dist.destroy_process_group()
