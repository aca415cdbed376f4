"""The seam: one algorithm for one dimension. A new mode is one file and one line in `MODES` (`table.py`).

A mode belongs to a fixed set of peers. Its calls are collective: every peer makes the same calls in the same order,
from one thread at a time. Tensors are flat, contiguous and on the CPU; they are changed in place. A peer that is gone
makes a call raise `PeerError`; the mode is useless afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Protocol, TypeGuard

import torch
from torch import Tensor

from weft.collectives.reduction import Reduction

Bounds = Sequence[tuple[int, int]]  # for each peer, the first element of its part and the one after the last


class Mode(Protocol):
    """Collectives among the peers of one dimension."""

    name: str  # as users know the mode
    index: int  # of this process among the peers
    size: int  # number of peers

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        """Every peer gets the reduced values, bitwise the same."""
        ...

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        """Our part gets the reduced values; the rest of the tensor is undefined afterwards."""
        ...

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        """Every peer gets every part."""
        ...

    def broadcast(self, values: Tensor, root: int) -> None:
        """Every peer gets the values of peer `root`."""
        ...

    def barrier(self) -> None:
        """Return when every peer has called."""
        ...

    def close(self) -> None:
        """Let go of memory and connections; safe to call again."""
        ...


class Pending(Protocol):
    """A reduction that is under way."""

    def wait(self) -> None:
        """Return when the reduction has ended."""
        ...


class Background(Mode, Protocol):
    """A mode that can have several reductions under way, as the dimension between hosts must."""

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Pending:
        """Begin a reduction; those that are under way are carried out in the order of the calls."""
        ...


class Streaming(Background, Protocol):
    """A background mode that can also have several reduce-scatters or all-gathers under way, without a gap.

    Other modes make such calls one after the other, in a thread of their own (`Hierarchy`).
    """

    def start_reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> Pending:
        """Begin a reduce-scatter; those that are under way are carried out in the order of the calls."""
        ...

    def start_all_gather(self, values: Tensor, bounds: Bounds) -> Pending:
        """Begin an all-gather; those that are under way are carried out in the order of the calls."""
        ...


def streams(mode: object) -> TypeGuard[Streaming]:
    """Return whether a mode can have several reduce-scatters and all-gathers under way."""
    return hasattr(mode, "start_all_gather")


class ManyAtOnce(Mode, Protocol):
    """A mode that reduces several tensors as one without copying them together first."""

    def all_reduce_many(
        self, tensors: Sequence[Tensor], reduction: Reduction, after: Callable[[list[Tensor]], None]
    ) -> None:
        """Reduce flat tensors of one type in place; `after` is given each part of them once it is reduced."""
        ...


def takes_many(mode: object) -> TypeGuard[ManyAtOnce]:
    """Return whether a mode reduces several tensors as one."""
    return hasattr(mode, "all_reduce_many")


def batches(tensors: Sequence[Tensor], most_bytes: int) -> Iterator[list[Tensor]]:
    """Give flat tensors in their order, as many at a time as have `most_bytes` together; large ones come in parts."""
    sizes = [tensor.nbytes for tensor in tensors]
    if sizes and min(sizes) > 0 and max(sizes) <= most_bytes:
        yield from _whole_batches(tensors, list(accumulate(sizes)), most_bytes)
        return
    batch: list[Tensor] = []
    room = most_bytes
    for tensor, nbytes in zip(tensors, sizes, strict=True):
        if nbytes > most_bytes:
            if batch:
                yield batch
                batch, room = [], most_bytes
            *whole, rest = torch.split(tensor, most_bytes // tensor.element_size())
            for part in whole:
                yield [part]
            tensor, nbytes = rest, rest.nbytes
        if nbytes > room:
            yield batch
            batch, room = [], most_bytes
        if nbytes:
            batch.append(tensor)
            room -= nbytes
    if batch:
        yield batch


def _whole_batches(tensors: Sequence[Tensor], ends: list[int], most_bytes: int) -> Iterator[list[Tensor]]:
    """Give tensors that fit, each of which ends at a byte of all of them."""
    begin = begin_byte = 0
    while begin < len(ends):
        end = bisect_right(ends, begin_byte + most_bytes, begin)
        yield list(tensors[begin:end])
        begin, begin_byte = end, ends[end - 1]


@lru_cache(maxsize=1024)  # a tensor goes in many chunks of the same size
def even_bounds(count: int, parts: int) -> tuple[tuple[int, int], ...]:
    """`count` elements in `parts` parts, the first ones a little larger where they do not divide."""
    size, left = divmod(count, parts)
    ends = [part * size + min(part, left) for part in range(parts + 1)]
    return tuple(pairwise(ends))


def bounds_of(counts: Sequence[int]) -> Bounds:
    """Parts of these sizes, one after the other."""
    return list(pairwise(accumulate(counts, initial=0)))
