"""Lighter gradients for DDP on any backend: hooks that need no NCCL.

    model.register_comm_hook(None, bf16_hook)
    model.register_comm_hook(Int8State(), int8_hook)

Under the backend "weft" on several hosts prefer `weft.init(wire=...)`: it is light only where the wire is slow.
"""

# Annotations are not put off here: DDP compares those of a hook with the types themselves.

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from weft.collectives.modes.wires.int8_exchange import block_parts, decode_into, sum_of_terms
from weft.collectives.modes.wires.wire import BlockInt8, Feedback
from weft.collectives.torch_private import GradBucket


def bf16_hook(group: dist.ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients as bf16: half the bytes."""
    return _cast(group, bucket, torch.bfloat16)


def fp16_hook(group: dist.ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients as fp16: half the bytes, more digits than bf16, a range that ends at 65504."""
    return _cast(group, bucket, torch.float16)


def _cast(group: dist.ProcessGroup | None, bucket: GradBucket, dtype: torch.dtype) -> Future[Tensor]:
    group = group or dist.group.WORLD
    assert group is not None
    gradients = bucket.buffer()
    # Divided first: a sum of averages goes no further than its terms.
    short = (gradients / group.size()).to(dtype)
    work = dist.all_reduce(short, group=group, async_op=True)

    def lengthen(reduced: Future[Any]) -> Tensor:
        reduced.value()  # raises what went wrong
        return gradients.copy_(short)

    averaged: Future[Tensor] = work.get_future().then(lengthen)
    return averaged


class Int8State:
    """The state that the int8 hook keeps from step to step: how much was lost of each bucket's gradients."""

    def __init__(self, group: dist.ProcessGroup | None = None, *, feedback: bool = True) -> None:
        self._group = group
        self.codec = BlockInt8()
        self._feedback = Feedback(self.codec) if feedback else None
        self.under_way: deque[_Int8Bucket] = deque()

    @property
    def group(self) -> dist.ProcessGroup:
        group = self._group or dist.group.WORLD
        assert group is not None
        return group

    def encode(self, key: tuple[Any, ...], values: Tensor) -> Tensor:
        return self._feedback.encode(key, values) if self._feedback is not None else self.codec.encode(values)


def int8_hook(state: Int8State, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients as blocks of int8: about a quarter of the bytes, whatever the number of ranks.

    Each rank gets everyone's encoded gradients of its own part, adds them up, and sends the encoded sum to all: every
    rank ends with the same bits. Both steps are started here, never when something ends, so that all ranks start them
    in the same order. The second one of a bucket starts when the next bucket is ready, or when there is none.
    """
    state.under_way.append(_Int8Bucket(state, bucket))
    passage = state.under_way[-1]
    try:
        while len(state.under_way) > (0 if bucket.is_last() else 1):
            state.under_way.popleft().turn()
    except BaseException:
        state.under_way.clear()  # the next backward pass starts anew
        raise
    return passage.average


class _Int8Bucket:
    """One bucket on its way through both steps."""

    def __init__(self, state: Int8State, bucket: GradBucket) -> None:
        self._state = state
        self._key = tuple(map(id, bucket.parameters()))  # the same parameters, the same bucket
        self._gradients = bucket.buffer()
        self._values = self._gradients.detach().float().cpu()
        self._group, self._world = state.group, state.group.size()
        # A future that fails must do so in a callback: DDP would take an exception set on it for tensors.
        self._done: Future[BaseException | None] = Future()
        self.average: Future[Tensor] = self._done.then(partial(_gradients_or_raise, self._gradients))
        self._parts = block_parts(self._values, self._world)
        self._sizes = [state.codec.encoded_bytes(part.numel()) for part in self._parts]
        self._mine = self._parts[self._group.rank()]
        self._start()

    def _start(self) -> None:
        """Send each part of the bucket to the rank that adds it up."""
        encoded = [
            self._state.encode((*self._key, peer), part).view(torch.uint8)
            for peer, part in enumerate(self._parts)
        ]
        size = self._state.codec.encoded_bytes(self._mine.numel())
        self._sent = self._to_wire(torch.cat(encoded))
        self._arrived = self._to_wire(torch.empty(self._world * size, dtype=torch.uint8))
        self._scattering = dist.all_to_all_single(
            self._arrived, self._sent, [size] * self._world, self._sizes, group=self._group, async_op=True
        )

    def turn(self) -> None:
        """Send the sum of this rank's part to all ranks."""
        self._scattering.wait()
        terms = self._arrived.cpu().view(self._world, -1)
        total = sum_of_terms(self._state.codec, terms, self._mine).div_(self._world)
        encoded = self._state.encode((*self._key, "sum"), total)
        # All of one size, the longest: not every backend gathers parts that differ.
        padded = torch.zeros(max(self._sizes), dtype=torch.uint8)
        padded[: encoded.numel()] = encoded
        gathered = self._to_wire(torch.empty(self._world, padded.numel(), dtype=torch.uint8))
        work = dist.all_gather(list(gathered), self._to_wire(padded), group=self._group, async_op=True)
        work.get_future().then(self._finish(gathered))

    def _finish(self, rows: Tensor) -> Callable[[Future[Any]], None]:
        """Return what is called with the sums of all ranks.

        It must not hold the group. A thread of Gloo's lets go of it, perhaps after everyone else has left the group;
        a group that is destroyed by a thread of its own waits for that thread, and ends the process with SIGABRT.
        """
        codec, parts, sizes = self._state.codec, self._parts, self._sizes
        values, gradients, done = self._values, self._gradients, self._done

        def finish(gathered: Future[Any]) -> None:
            error: BaseException | None = None
            try:
                gathered.value()
                for part, size, encoded in zip(parts, sizes, rows.cpu(), strict=True):
                    decode_into(codec, encoded[:size], part)
                gradients.copy_(values.view(gradients.shape))
            except BaseException as caught:
                error = caught
            done.set_result(error)

        return finish

    def _to_wire(self, values: Tensor) -> Tensor:
        """Return values where the group can send them: NCCL takes tensors of the device alone."""
        return values.to(self._gradients.device)


def _gradients_or_raise(gradients: Tensor, done: Future[BaseException | None]) -> Tensor:
    error = done.value()
    if error is not None:
        raise error
    return gradients
