"""Collectives of FSDP2 that go on while a CPU computes.

On accelerators FSDP2 overlaps by streams. On CPUs its collectives block: a reduce-scatter returns when it has ended.
Here it returns at once. The sharded gradients are views of what it fills, and the end of
the backward pass waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable

from weft.parallel.applying.torch_private import ReduceScatter, reduce_scatter


class PendingReductions:
    """The reductions of one backward pass that are under way; one for all layers of a model."""

    def __init__(self) -> None:
        self._works: list[tuple[Any, torch.Tensor]] = []

    def add(self, work: Any, source: torch.Tensor) -> None:
        """Keep a reduction, and the memory it reads, until the end of the backward pass."""
        if not self._works:
            Variable._execution_engine.queue_callback(self.wait)
        self._works.append((work, source))

    def wait(self) -> None:
        """Return when all have ended."""
        works, self._works = self._works, []
        for work, _ in works:
            work.wait()


class OverlappedReduceScatter(ReduceScatter):
    """The reduce-scatter of one layer, and for HSDP the all-reduce of the shards across hosts behind it."""

    def __init__(
        self, pending: PendingReductions, parameters: Sequence[nn.Parameter], across: Any = None
    ) -> None:
        self._pending = pending
        self._parameters = tuple(parameters)
        self._across = across  # the group of those who hold the same shard, of HSDP

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        work = reduce_scatter(output_tensor, input_tensor, group=group, op=op, async_op=True)
        if self._across is not None:
            work.wait()  # through shared memory, in a moment
            work = dist.all_reduce(output_tensor, group=self._across, op=op, async_op=True)
        if any(parameter.grad is not None for parameter in self._parameters):
            work.wait()  # FSDP2 adds it to the gradient that is there, at once
        else:
            self._pending.add(work, input_tensor)
