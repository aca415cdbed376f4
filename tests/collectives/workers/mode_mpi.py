"""The contract of a mode for `mpi`: the peers are the ranks of this MPI world, or the first few of them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

from tests.collectives.modes.mode_contract import BETWEEN_HOSTS, CASES, LEAVING
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from weft.collectives.modes.messages.mpi import Mpi
from weft.collectives.modes.messages.mpi_world import MpiWorld, offer_from, world_for

store, rank, size = next(rendezvous("env://"))


def world_of(name: str) -> MpiWorld:
    world = world_for(PrefixStore(name, store), rank, size, offer_from(os.environ))
    assert isinstance(world, MpiWorld), world
    return world


def together(count: int, work: Callable[[Any], Any]) -> list[Any]:
    result = None
    if rank < count:
        mode = Mpi(everyone.mpi, everyone.communicator(range(count), 10), timeout_s=10)
        try:
            result = work(mode)
        finally:
            mode.close()
    results: list[Any] = everyone.mpi.COMM_WORLD.allgather(result)
    return results[:count]


everyone = world_of("first")
for name, case in {**CASES, **BETWEEN_HOSTS, **LEAVING}.items():
    try:
        case(together)
    except Exception:
        print(f"FAILED {name}: {traceback.format_exc()}", flush=True)
        everyone.mpi.COMM_WORLD.Abort(1)
    if rank == 0:
        print(f"kept: {name}", flush=True)
