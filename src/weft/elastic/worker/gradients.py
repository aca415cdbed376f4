"""Gradients of one step: summed over a member's micro-batches, then over the members while the backward pass runs.

A member's own sum stays untouched until the step commits, so that a reduction that breaks costs nothing but itself: the
next one starts from the same sums. Meanwhile `.grad` of every parameter is None, and what a script does to gradients in
between (clipping, say) does nothing; once the sum over all members is there, `.grad` shows that.

Sums of floating-point numbers depend on their order, and the order on who computed what. With a row for each
micro-batch they are added in the order of the micro-batches whoever computed them, and a run that lost members ends
with the same bits as one that did not. That moves as many times the bytes as a step has micro-batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.errors import UsageError

FIRST_BUCKET_BYTES = 1 << 20  # small: it sets off while most of the backward pass is still to come
BUCKET_BYTES = 25 << 20


@dataclass
class GradientSlot:
    """One parameter's place in its bucket."""

    parameter: nn.Parameter
    index: int  # among all parameters
    start: int
    stop: int
    touched: set[int] = field(default_factory=set)  # rows, in this step


@dataclass
class GradientBucket:
    """Some parameters whose gradients are reduced together."""

    slots: list[GradientSlot]
    own: Tensor  # our share of the step, in one row or in one for each micro-batch
    total: Tensor  # everyone's
    arrived: int = 0  # in the last micro-batch
    works: list[Any] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return self.arrived == len(self.slots)


class Gradients:
    """The gradients of all parameters, in buckets; `reduce` begins the sum over the members of one tensor."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        reduce: Callable[[Tensor], Any],
        *,
        rows: int = 1,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._reduce = reduce
        self._rows = rows
        self.buckets = list(_buckets(self.parameters, bucket_bytes, rows))
        self._slots = {id(slot.parameter): (bucket, slot) for bucket in self.buckets for slot in bucket.slots}
        self._weight = 0.0
        self._row = 0
        self._last = False
        self._launched = 0
        self.error: Exception | None = None
        self._backward_ends: Callable[[], None] | None = None
        self._queued = False
        self._inside = False  # between the beginning of a micro-batch and that of the next, or its end
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._arrive)  # type: ignore[no-untyped-call]
            for parameter in self.parameters
        ]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    # -- one micro-batch --------------------------------------------------------------------------

    def begin(self, micro: int, weight: float, *, last: bool, then: Callable[[], None]) -> None:
        """A micro-batch begins; its gradients count with this weight; `then` is called when its backward pass ends.

        With the last one of a step, each bucket is reduced as soon as it is whole.
        """
        self._weight, self._last, self._backward_ends, self._queued = weight, last, then, False
        self._inside = True
        self._row = micro if self._rows > 1 else 0
        self._launched = 0
        for bucket in self.buckets:
            bucket.arrived = 0

    def _arrive(self, parameter: Tensor) -> None:
        """Take a gradient that the backward pass has just finished."""
        if self._backward_ends is None:
            if self._inside:
                raise UsageError(
                    "every micro-batch must have one backward pass, got a second; add up the losses and call "
                    "backward once"
                )
            return  # not ours: a backward pass outside of the loop
        bucket, slot = self._slots[id(parameter)]
        gradient = parameter.grad
        assert gradient is not None
        parameter.grad = None
        if self._weight:
            own = bucket.own[self._row, slot.start : slot.stop].view_as(gradient)
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            if self._row in slot.touched:
                own.add_(gradient, alpha=self._weight)
            else:
                torch.mul(gradient, self._weight, out=own)
                slot.touched.add(self._row)
        bucket.arrived += 1
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._ended)
        if self._last and bucket.whole:
            self._launch_those_in_turn()

    def _ended(self) -> None:
        then, self._backward_ends = self._backward_ends, None
        if then is not None:
            then()

    def end(self) -> None:
        """The loop body of a micro-batch has ended: backward passes until the next one are not ours."""
        self._inside, self._backward_ends = False, None

    # -- one step ---------------------------------------------------------------------------------

    def _launch_those_in_turn(self) -> None:
        """All members must launch in the same order, whatever becomes whole first."""
        while self._launched < len(self.buckets) and self.buckets[self._launched].whole:
            self._launch(self.buckets[self._launched])
            self._launched += 1

    def _launch(self, bucket: GradientBucket) -> None:
        if self.error is not None:
            return
        for slot in bucket.slots:
            for row in range(self._rows):
                if row not in slot.touched:
                    bucket.own[row, slot.start : slot.stop].zero_()
        bucket.total.copy_(bucket.own)
        try:
            bucket.works.append(self._reduce(bucket.total))
        except Exception as error:  # told where it can be dealt with, not in the middle of a backward pass
            self.error = error

    def touched(self) -> Tensor:
        """Which parameters this member has gradients for, as numbers that can be added up."""
        flags = torch.zeros(len(self.parameters), dtype=torch.float64)
        for bucket in self.buckets:
            for slot in bucket.slots:
                flags[slot.index] = float(bool(slot.touched))
        return flags

    def launch(self) -> None:
        """Reduce what is not under way yet: parameters that the last micro-batch did not use hold it up."""
        for bucket in self.buckets[self._launched :]:
            self._launch(bucket)
        self._launched = len(self.buckets)

    def wait(self) -> None:
        """Until everything is reduced; raises what went wrong."""
        self._wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def give_up(self) -> None:
        """Wait until nothing is under way any more, however it ends, and be ready to reduce again."""
        with contextlib.suppress(Exception):
            self._wait()
        self.error = None
        self._launched = 0

    def _wait(self) -> None:
        for bucket in self.buckets:
            for work in bucket.works:
                try:
                    work.wait()
                except Exception as error:
                    self.error = self.error or error
            bucket.works.clear()

    def show(self, used: Sequence[float]) -> None:
        """Let `.grad` be the sum of all members; a parameter that none of them used has none."""
        for bucket in self.buckets:
            total = bucket.total[0] if self._rows == 1 else bucket.total.sum(0)
            for slot in bucket.slots:
                if used[slot.index]:
                    slot.parameter.grad = total[slot.start : slot.stop].view_as(slot.parameter)

    def clear(self) -> None:
        """The step is over: the sums begin anew."""
        for bucket in self.buckets:
            for slot in bucket.slots:
                slot.touched.clear()
                slot.parameter.grad = None


def _buckets(parameters: Sequence[nn.Parameter], bucket_bytes: int, rows: int) -> Iterable[GradientBucket]:
    """Parameters from the last to the first, as the backward pass comes to them; one type and device in each bucket."""
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index in reversed(range(len(parameters))):
        kinds.setdefault((parameters[index].dtype, parameters[index].device), []).append(index)
    limit = min(FIRST_BUCKET_BYTES, bucket_bytes)
    for indices in kinds.values():
        members: list[int] = []
        size = 0
        for index in indices:
            members.append(index)
            size += parameters[index].nbytes
            if size >= limit:
                yield _bucket(parameters, members, rows)
                members, size, limit = [], 0, bucket_bytes
        if members:
            yield _bucket(parameters, members, rows)


def _bucket(parameters: Sequence[nn.Parameter], indices: Sequence[int], rows: int) -> GradientBucket:
    slots, start = [], 0
    for index in indices:
        stop = start + parameters[index].numel()
        slots.append(GradientSlot(parameters[index], index, start, stop))
        start = stop
    like = parameters[indices[0]]
    own = torch.zeros(rows, start, dtype=like.dtype, device=like.device)
    return GradientBucket(slots, own, torch.empty_like(own))


def all_reduce(values: Tensor) -> Any:
    """Begin the sum over the members of the present view."""
    return dist.all_reduce(values, async_op=True)
