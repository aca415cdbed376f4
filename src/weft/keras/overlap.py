"""Gradients of a torch model are averaged in buckets while the backward pass goes on, as DistributedDataParallel does.

A bucket is a copy of its gradients, so that a step which turns out to be another than was thought (a second backward
pass, gradients that were changed or replaced) is averaged anew, as without buckets. Buckets travel only between the
begin and the end of a batch of `fit`: what else a worker differentiates, it does alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from weft.keras.backends import parts_of

BUCKET_BYTES = 8 << 20  # of gradients that travel at a time


class PendingAverage(Protocol):
    """An average that is under way: a `torch.distributed.Work`, say."""

    def wait(self) -> Any: ...


# Given a flat tensor of gradients, begins to average it in place over all workers.
StartAverage = Callable[[Tensor], PendingAverage]


@dataclass
class _Bucket:
    """Parameters whose gradients travel together."""

    places: list[int]
    memory: Tensor
    views: list[Tensor]
    missing: int = 0
    pending: PendingAverage | None = None
    versions: tuple[int, ...] = ()  # of the gradients when they were copied


class GradientBuckets:
    """The buckets of one model's parameters; they travel in one order on all workers, the last parameters first."""

    def __init__(
        self, parameters: Sequence[Tensor], start: StartAverage, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        self.armed = False
        self._parameters = list(parameters)
        self._start = start
        self._buckets = [
            self._bucket(places)
            for kind in dict.fromkeys((one.dtype, one.device) for one in parameters)
            for places in self._parts(kind, bucket_bytes)
        ]
        self._bucket_of = {place: bucket for bucket in self._buckets for place in bucket.places}
        self._ready: set[int] = set()
        self._next = 0  # the first bucket that has not begun
        self._spoilt = False
        for place, parameter in enumerate(parameters):
            hook = partial(self._take, place)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _parts(self, kind: tuple[Any, Any], bucket_bytes: int) -> list[list[int]]:
        places = [place for place, one in enumerate(self._parameters) if (one.dtype, one.device) == kind]
        sizes = [self._parameters[place].nbytes for place in places]
        return [[places[index] for index in part] for part in parts_of(sizes, bucket_bytes)]

    def _bucket(self, places: list[int]) -> _Bucket:
        like = [self._parameters[place] for place in places]
        memory = like[0].new_empty(sum(one.numel() for one in like)).detach()
        pieces = torch.split(memory, [one.numel() for one in like])
        views = [piece.view(one.shape) for piece, one in zip(pieces, like, strict=True)]
        return _Bucket(places, memory, views, len(places))

    def serves(self, parameters: Sequence[Tensor]) -> bool:
        """Return whether these are the very parameters of the buckets."""
        return len(parameters) == len(self._parameters) and all(
            one is own for one, own in zip(parameters, self._parameters, strict=True)
        )

    def _take(self, place: int, _parameter: Tensor) -> None:
        """Note that a gradient is there, and begin the buckets that are whole, in their order."""
        if not self.armed:
            return
        if place in self._ready:  # a second backward pass adds to what may travel already
            self._spoilt = True
            return
        self._ready.add(place)
        self._bucket_of[place].missing -= 1
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._begin(self._buckets[self._next])
            self._next += 1

    def _begin(self, bucket: _Bucket) -> None:
        grads = [self._parameters[place].grad for place in bucket.places]
        for view, grad in zip(bucket.views, grads, strict=True):
            assert grad is not None
            view.copy_(grad.detach())
        bucket.versions = tuple(grad._version for grad in grads if grad is not None)
        bucket.pending = self._start(bucket.memory)

    def finish(self, grads: Sequence[Any], average: Callable[[list[Tensor]], Sequence[Tensor]]) -> list[Any]:
        """Return the averages of a step's gradients: those that travelled, and all others by `average`."""
        begun = self._buckets[: self._next]
        for bucket in begun:
            assert bucket.pending is not None
            bucket.pending.wait()
        result = list(grads)
        if not self._spoilt and all(self._is_as_copied(bucket, grads) for bucket in begun):
            for bucket in begun:
                for place, view in zip(bucket.places, bucket.views, strict=True):
                    result[place] = view
            done = {place for bucket in begun for place in bucket.places}
        else:
            done = set()
        rest = [place for place, grad in enumerate(grads) if grad is not None and place not in done]
        if rest:
            made = average([grads[place].detach() for place in rest])
            for place, reduced in zip(rest, made, strict=True):
                result[place] = reduced
        self._forget()
        return result

    def _is_as_copied(self, bucket: _Bucket, grads: Sequence[Any]) -> bool:
        own = [self._parameters[place].grad for place in bucket.places]
        return all(
            grad is not None and grads[place] is grad and grad._version == version
            for place, grad, version in zip(bucket.places, own, bucket.versions, strict=True)
        )

    def forget(self) -> None:
        """Wait for what travels and forget it: the gradients of a step that is not applied."""
        for bucket in self._buckets[: self._next]:
            assert bucket.pending is not None
            bucket.pending.wait()
        self._forget()

    def _forget(self) -> None:
        self._ready.clear()
        self._next, self._spoilt = 0, False
        for bucket in self._buckets:
            bucket.missing, bucket.pending, bucket.versions = len(bucket.places), None, ()


class OverlappedAverage:
    """The average of an optimizer's gradients: in buckets during the backward pass of a batch, else all at once."""

    def __init__(self, start: StartAverage, average: Callable[[list[Tensor]], Sequence[Tensor]]) -> None:
        self._start, self._average = start, average
        self._buckets: GradientBuckets | None = None

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the averages of a step's gradients; the buckets are made after the first step."""
        parameters = [variable.value for variable in variables]
        if self._buckets is not None and self._buckets.serves(parameters):
            return self._buckets.finish(grads, self._average)
        given = [place for place, grad in enumerate(grads) if grad is not None]
        made = self._average([grads[place].detach() for place in given])
        result = list(grads)
        for place, reduced in zip(given, made, strict=True):
            result[place] = reduced
        if self._buckets is None:
            self._buckets = GradientBuckets(parameters, self._start)
        return result

    def batch_begins(self) -> None:
        """Let gradients travel as soon as they are there."""
        if self._buckets is not None:
            self._buckets.forget()  # of a batch that was given up
            self._buckets.armed = True

    def batch_ends(self) -> None:
        """Let no gradients travel until the next batch."""
        if self._buckets is not None:
            self._buckets.armed = False
            self._buckets.forget()
