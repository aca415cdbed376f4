"""Gradients of one step: summed over a member's micro-batches, then over the members while the backward pass runs.

A member's own sum stays untouched until the step commits, so that a reduction that breaks costs nothing but itself: the
next one starts from the same sums. Meanwhile `.grad` of every parameter is None, and what a script does to gradients in
between (clipping, say) does nothing; once the sum over all members is there, `.grad` shows that.

A script may have several backward passes in one turn of its loop: for two losses, or for the two models of a GAN, each
with its own optimizer. Each pass has sums of its own. In the last turn of a step each pass ends with a reduction, whose
result is added to `.grad`, as autograd and DDP add what one pass after another gives.

Sums of floating-point numbers depend on their order, and the order on who computed what. With a row for each
micro-batch they are added in the order of the micro-batches whoever computed them, and a run that lost members ends
with the same bits as one that did not. That moves as many times the bytes as a step has micro-batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.elastic.replica.gradient_buckets import BUCKET_BYTES, GradientBucket, GradientSlot, make_buckets
from weft.elastic.torch_private import call_after_backward


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
        self.parameters = list(parameters)
        self._reduce, self._rows, self._bucket_bytes = reduce, rows, bucket_bytes
        self.error: Exception | None = None
        self._weight = 0.0
        self._row = 0
        self._last = False
        self._launched = 0
        self._on_pass: Callable[[], None] | None = None  # set while a turn of the loop lasts
        self._queued = False  # a pass runs
        self._arrivals = 0  # in the pass that runs
        self.passes = 0  # that have ended in this turn; while one runs, its number
        self._most_passes = 0  # of a turn of this step
        self._hooks: list[Any] = []
        self._trained: list[bool] = []
        self.buckets: list[GradientBucket] = []
        self.follow_frozen()

    def follow_frozen(self) -> None:
        """Make new buckets if parameters were frozen or unfrozen; to be called between two steps."""
        trained = [parameter.requires_grad for parameter in self.parameters]
        if trained == self._trained:
            return
        self.close()
        self._trained = trained
        self.buckets = list(make_buckets(self.parameters, self._bucket_bytes, self._rows))
        for bucket in self.buckets:
            for slot in bucket.slots:
                arrive = partial(self._arrive, bucket, slot)
                self._hooks += [
                    slot.parameter.register_hook(partial(self._set_aside, slot)),  # type: ignore[no-untyped-call]
                    slot.parameter.register_post_accumulate_grad_hook(arrive),  # type: ignore[no-untyped-call]
                ]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    # -- one micro-batch --------------------------------------------------------------------------

    def begin(self, micro: int, weight: float, *, last: bool, then: Callable[[], None]) -> None:
        """Begin a micro-batch, whose gradients have this weight; `then` is called as each backward pass ends.

        With the last one of a step, each bucket is reduced as soon as it is whole.
        """
        self._weight, self._last, self._on_pass = weight, last, then
        self._row = micro if self._rows > 1 else 0
        self.passes = 0
        self._begin_pass()

    def _begin_pass(self) -> None:
        self._queued, self._arrivals, self._launched = False, 0, 0
        for bucket in self.buckets:
            bucket.arrived = 0

    def _set_aside(self, slot: GradientSlot, _: Tensor) -> None:
        """Set `.grad` aside before a pass adds to it, so that what this pass gives can be told apart."""
        if self._on_pass is None:
            return  # not ours: a backward pass outside of the loop
        if not self._queued:
            self._queued = True
            call_after_backward(self._ended)
        slot.before, slot.parameter.grad = slot.parameter.grad, None

    def _arrive(self, bucket: GradientBucket, slot: GradientSlot, parameter: Tensor) -> None:
        """Take a gradient that the backward pass has just finished."""
        if self._on_pass is None:
            return
        gradient = parameter.grad
        assert gradient is not None
        parameter.grad = None
        self._arrivals += 1
        if self._weight:
            self._add(bucket, slot, gradient.to_dense() if gradient.is_sparse else gradient)
        bucket.arrived += 1
        if self._last and bucket.whole:
            self._launch_those_in_turn()

    def _add(self, bucket: GradientBucket, slot: GradientSlot, gradient: Tensor) -> None:
        own = bucket.of_pass(self.passes).own[self._row, slot.start : slot.stop].view_as(gradient)
        touched = slot.touched[self.passes]
        if self._row in touched:
            own.add_(gradient, alpha=self._weight)
        else:
            torch.mul(gradient, self._weight, out=own)
            touched.add(self._row)

    def _ended(self) -> None:
        """Let the loop reduce a pass that has ended, in the last iteration of a step, and show the sum."""
        if self._on_pass is not None and self._arrivals:
            self._on_pass()
            self.passes += 1
        # What was set aside is still there where no sum was shown, as after torch.autograd.grad.
        for slot in (slot for bucket in self.buckets for slot in bucket.slots):
            if slot.before is not None:
                slot.parameter.grad, slot.before = slot.before, None
        self._begin_pass()

    def not_last(self) -> None:
        """Note that this iteration is not the last of its step: its passes are not reduced."""
        self._last = False
        self._hide()

    def end(self) -> int:
        """Note the end of a loop body; return its backward passes. Passes before the next body do not count."""
        inside, self._on_pass = self._on_pass is not None, None
        self._most_passes = max(self._most_passes, self.passes)
        return self.passes if inside else 0

    @property
    def unreduced_passes(self) -> int:
        """Return how many passes earlier turns of the step had beyond those of the turn that ended last."""
        return self._most_passes - self.passes

    # -- one step ---------------------------------------------------------------------------------

    def _launch_those_in_turn(self) -> None:
        """Launch whole buckets in their order, which must be the same on all members."""
        while self._launched < len(self.buckets) and self.buckets[self._launched].whole:
            self._launch(self.buckets[self._launched])
            self._launched += 1

    def _launch(self, bucket: GradientBucket) -> None:
        if self.error is not None:
            return
        sums = bucket.of_pass(self.passes)
        for slot in bucket.slots:
            for row in range(self._rows):
                if row not in slot.touched[self.passes]:
                    sums.own[row, slot.start : slot.stop].zero_()
        sums.total.copy_(sums.own)
        try:
            bucket.works.append(self._reduce(sums.total))
        except Exception as error:  # told where it can be dealt with, not in the middle of a backward pass
            self.error = error

    def touched(self) -> Tensor:
        """Return which parameters this member has gradients for, as numbers that can be added up."""
        flags = torch.zeros(len(self.parameters), dtype=torch.float64)
        for bucket in self.buckets:
            for slot in bucket.slots:
                flags[slot.index] = float(bool(slot.touched[self.passes]))
        return flags

    def launch(self) -> None:
        """Reduce what is not under way yet: parameters that the last micro-batch did not use hold it up."""
        for bucket in self.buckets[self._launched :]:
            self._launch(bucket)
        self._launched = len(self.buckets)

    def wait(self) -> None:
        """Wait until all gradients are reduced; raise the error of a reduction that failed."""
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

    def show(self, used: Sequence[float], *, scale: float = 1.0) -> None:
        """Add the sum of all members to `.grad`; it stays as it is where none of them used the parameter.

        `scale` makes up for micro-batches that were left out.
        """
        for bucket in self.buckets:
            sums = bucket.of_pass(self.passes).total
            total = sums[0] if self._rows == 1 else sums.sum(0)
            if scale != 1.0:
                total.mul_(scale)
            for slot in bucket.slots:
                if used[slot.index]:
                    before = slot.before if slot.before is not None else slot.parameter.grad
                    shown = total[slot.start : slot.stop].view_as(slot.parameter)
                    slot.parameter.grad, slot.before = shown if before is None else before + shown, None

    def _hide(self) -> None:
        for bucket in self.buckets:
            for slot in bucket.slots:
                slot.parameter.grad = slot.before = None

    def clear(self) -> None:
        """Begin the sums of the next step; passes of an iteration that goes on do not count."""
        self._hide()
        self._weight, self._last, self._most_passes = 0.0, False, 0
        for bucket in self.buckets:
            for slot in bucket.slots:
                slot.touched.clear()


def all_reduce(values: Tensor) -> Any:
    """Begin the sum over the members of the present view."""
    return dist.all_reduce(values, async_op=True)
