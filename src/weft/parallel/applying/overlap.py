"""Collectives of FSDP2 that go on while a CPU computes.

On accelerators FSDP2 overlaps by streams. On CPUs its collectives block: a reduce-scatter returns when it has ended.
Here it returns at once. The sharded gradients are views of what it fills, and the end of
the backward pass waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.distributed.tensor import DTensor

from weft.collectives.modes.serial_thread import BackgroundCall, SerialThread
from weft.parallel.applying.torch_private import ReduceScatter, reduce_scatter


class PendingReductions:
    """The reductions of one backward pass that are under way; one for all layers of a model."""

    def __init__(self) -> None:
        self._works: list[tuple[Any, torch.Tensor]] = []
        self._before: list[tuple[nn.Parameter, torch.Tensor]] = []  # gradients of the passes before
        self._next: SerialThread | None = None  # starts what follows a reduction

    def add(self, work: Any, source: torch.Tensor, parameters: Sequence[nn.Parameter]) -> None:
        """Keep a reduction, and the memory it reads, until the end of the backward pass.

        FSDP2 adds what it reduces to gradients that are there, at once. So they are put aside until then.
        """
        if not self._works:
            Variable._execution_engine.queue_callback(self.wait)
        self._works.append((work, source))
        for parameter in parameters:
            if parameter.grad is not None:
                self._before.append((parameter, parameter.grad))
                parameter.grad = None

    def then(self, work: Any, start: Callable[[], Any]) -> BackgroundCall[Any]:
        """Start what follows a reduction when it has ended, in the order of these calls."""
        if self._next is None:
            self._next = SerialThread("weft-across")
        return self._next.submit(_after, work, start)

    def end(self) -> None:
        """Let the thread end that starts what follows, once it has."""
        if self._next is not None:
            self._next.close()
            self._next = None

    def wait(self) -> None:
        """Return when all have ended, and are added to what was there."""
        works, self._works = self._works, []
        self.end()
        before, self._before = self._before, []
        for work, _ in works:
            work.wait()
        for parameter, gradient in before:
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                _local(parameter.grad).add_(_local(gradient))


class _Following:
    """A reduction that another one goes before."""

    def __init__(self, started: BackgroundCall[Any]) -> None:
        self._started = started

    def wait(self) -> None:
        self._started.result().wait()


def _after(work: Any, start: Callable[[], Any]) -> Any:
    work.wait()
    return start()


def _local(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


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
            across = partial(
                dist.all_reduce, output_tensor, group=self._across, op=dist.ReduceOp.AVG, async_op=True
            )
            if output_tensor.is_cpu:
                work = _Following(self._pending.then(work, across))
            else:
                work.wait()  # of streams: nobody waits here
                work = across()
        if op == dist.ReduceOp.AVG:
            self._pending.add(work, input_tensor, self._parameters)
        else:
            work.wait()  # of some types FSDP2 makes a mean out of the sum, at once
            self._pending.end()
