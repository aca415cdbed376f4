"""The workers of a joint fit as the ranks of torch.distributed's current group."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from weft.collectives.torch_private import world_group, world_store
from weft.errors import UsageError
from weft.learn.workers.faults import Fault, error_of

Array = np.ndarray[Any, Any]

GIVEN_UP, HEARD = "weft.learn/given-up", "weft.learn/heard"  # keys in torch's store
PATIENCE_S = 5.0  # rank 0 waits so long for the others to read the fault: the store may end with rank 0


class TorchWorkers:
    """The ranks of the current group, as `Workers`."""

    def __init__(self) -> None:
        if not dist.is_initialized():
            raise UsageError(
                "weft.learn.together() must come after weft.init(), got no group of ranks; call weft.init() first"
            )
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def add(self, values: Array) -> None:
        with self._told_why():
            dist.all_reduce(torch.from_numpy(values))

    def largest(self, value: float) -> float:
        tensor = torch.tensor([value], dtype=torch.float64)
        with self._told_why():
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return float(tensor[0])

    def gathered(self, thing: Any) -> list[Any]:
        things: list[Any] = [None] * self.size
        with self._told_why():
            dist.all_gather_object(things, thing)
        return things

    def give_up(self, fault: Fault) -> None:
        with suppress(RuntimeError):  # the group or its store is gone: the other workers know already
            # Store the fault before the group breaks: the others read it as soon as that happens.
            _store().set(GIVEN_UP, json.dumps({"rank": self.rank, **asdict(fault)}))
            _group().abort()
            self._heard()

    @contextmanager
    def _told_why(self) -> Iterator[None]:
        """Raise the fault of the worker that gave up, where that is why the group broke."""
        try:
            yield
        except RuntimeError:
            told = None
            with suppress(RuntimeError):
                if _store().check([GIVEN_UP]):
                    told = json.loads(_store().get(GIVEN_UP))
                    self._heard()
            if told is None:
                raise
            raise error_of({told.pop("rank"): Fault(**told)}) from None

    def _heard(self) -> None:
        """Count this worker among those that read the fault; rank 0 waits until all have."""
        _store().add(HEARD, 1)
        until = time.monotonic() + (PATIENCE_S if self.rank == 0 else 0.0)
        while time.monotonic() < until and _store().add(HEARD, 0) < self.size:
            time.sleep(0.02)


def _store() -> Any:
    return world_store()


def _group() -> Any:
    return world_group()
