"""Collectives that follow the machine: up through the host, across hosts, and back down.

In an all-reduce the ranks of a host reduce each a part (a reduce-scatter), across hosts the owners of a part reduce it
among themselves, and within the host everyone takes all parts (an all-gather). A reduce-scatter is its first half, an
all-gather its second. Large tensors go in chunks, so that the network carries one chunk while memory works on the next.
Small ones are all reduced: of bytes that are zero everywhere but at their owner, the largest are the owner's.

What the network card of a host carries at least, each way: 2 (H - 1) / H of an all-reduce, (H - 1) / H of the whole of
an all-gather or a reduce-scatter, all of a broadcast once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from weft.collectives.members import Arrangement, Layout, Stretch, arrange, in_turns
from weft.collectives.modes.mode import Background, Bounds, Mode, Pending, even_bounds, streams, takes_many
from weft.collectives.modes.serial_thread import SerialThread
from weft.collectives.reduction import Reduction

CHUNK_BYTES = 1 << 20
COPY_CHUNK_BYTES = 2 << 20  # of all parts together
CHUNKS_UNDER_WAY = 3  # for each level of the network
TURNS_UNDER_WAY = 4  # of what has parts: enough that the network never waits for memory
SMALL_BYTES = 1 << 15  # up to here one rank a host speaks for all

_LARGEST = Reduction("MAX")
T = TypeVar("T")


class Hierarchy:
    """The modes of a group, one per dimension, working together."""

    def __init__(
        self, layout: Layout, rank: int, local: Mode | None, across: Mapping[int, Background]
    ) -> None:
        self.layout = layout
        self.rank = rank
        self.local = local  # None for a host with one rank
        self.across = across  # by the slice it serves; none on a single host
        self._threads = {piece: SerialThread(f"weft-slice-{piece}") for piece in across}
        self._host = layout.host_of(rank)
        self.under_way = CHUNKS_UNDER_WAY
        self._alone = local is None and not across
        self._whole = self._one_for_all()

    def _one_for_all(self) -> Mode | None:
        """The mode that serves the whole group, where one does: of the one host, or between hosts of one rank each."""
        if self.across:
            return self.across[0] if self.layout.slices == 1 else None
        return self.local

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        """Reduce in place."""
        if (whole := self._whole) is not None:
            whole.all_reduce(values, reduction)
        elif self._alone:
            return
        elif values.nbytes <= SMALL_BYTES:
            self._small(values, reduction)
        elif values.nbytes <= CHUNK_BYTES:
            self._up(values, reduction)
            self._over(values, reduction)
            self._down(values)
        else:
            self._pipelined(values, reduction)

    def all_reduce_together(
        self, tensors: Sequence[Tensor], reduction: Reduction, after: Callable[[list[Tensor]], None]
    ) -> bool:
        """Reduce flat tensors of one type in place, without a copy of all; return False where no mode can."""
        whole = self._whole
        if whole is None or not takes_many(whole):
            return False
        whole.all_reduce_many(tensors, reduction, after)
        return True

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        """Our part gets the reduced values; the rest of the tensor is undefined afterwards."""
        if self._alone:
            return
        if (whole := self._whole) is not None:
            whole.reduce_scatter(values, bounds, reduction)
        elif values.nbytes <= SMALL_BYTES:
            self.all_reduce(values, reduction)
        else:
            self._scatter_in_turns(values, bounds, reduction, values[slice(*bounds[self.rank])])

    def reduce_scatter_into(
        self, values: Tensor, bounds: Bounds, reduction: Reduction, output: Tensor
    ) -> None:
        """Put our part, reduced, into `output`; the tensor stays as it is."""
        own = slice(*bounds[self.rank])
        if self._alone:
            output.copy_(values[own])
        elif self._whole is not None or values.nbytes <= SMALL_BYTES:
            values = values.clone()
            self.reduce_scatter(values, bounds, reduction)
            output.copy_(values[own])
        else:
            self._scatter_in_turns(values, bounds, reduction, output)

    def _scatter_in_turns(self, values: Tensor, bounds: Bounds, reduction: Reduction, output: Tensor) -> None:
        """Reduce pieces of all parts, in memory of their own, and put those of our part where they belong."""
        begin = bounds[self.rank][0]
        in_order(
            [_Turn(self.layout, values, stretches) for stretches in self._turns(values, bounds)],
            lambda turn: self._start_scatter(turn, reduction),
            lambda turn: turn.put_own(self.rank, output, begin),
            TURNS_UNDER_WAY,
        )

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        """Every rank gets every part."""
        if self._alone:
            return
        if (whole := self._whole) is not None:
            whole.all_gather(values, bounds)
        elif values.nbytes <= SMALL_BYTES:
            first, last = bounds[self.rank]
            values[:first].zero_()
            values[last:].zero_()
            self.all_reduce(values.view(torch.uint8), _LARGEST)
        else:
            turns = [_Turn(self.layout, values, stretches) for stretches in self._turns(values, bounds)]
            in_order(turns, self._start_gather, self._finish_gather, TURNS_UNDER_WAY)

    def broadcast(self, values: Tensor, root: int) -> None:
        """Every rank gets the values of rank `root`."""
        if self._alone:
            return
        if (whole := self._whole) is not None:
            whole.broadcast(values, root)
        elif values.nbytes <= SMALL_BYTES:
            if self.rank != root:
                values.zero_()
            self.all_reduce(values.view(torch.uint8), _LARGEST)
        else:
            self._broadcast_in_chunks(values, root)

    def barrier(self) -> None:
        """Return when every rank has called."""
        if (whole := self._whole) is not None:
            whole.barrier()
        else:
            self.all_reduce(torch.zeros(1, dtype=torch.uint8), _LARGEST)

    # -- all-reduce -------------------------------------------------------------------------------

    def _small(self, values: Tensor, reduction: Reduction) -> None:
        leader = self.layout.locals_of(self.rank)[0]
        if self.local is not None:
            count = values.numel()
            self.local.reduce_scatter(
                values, [(0, count)] + [(count, count)] * (self.local.size - 1), reduction
            )
        if self.rank == leader:
            self.across[0].all_reduce(values, reduction)
        if self.local is not None:
            self.local.broadcast(values, 0)

    def _up(self, values: Tensor, reduction: Reduction) -> None:
        if self.local is not None:
            self.local.reduce_scatter(values, self.layout.local_bounds(self.rank, values.numel()), reduction)

    def _over(self, values: Tensor, reduction: Reduction) -> None:
        slices = even_bounds(values.numel(), self.layout.slices)
        for piece, mode in self.across.items():  # in the same order on every host
            first, last = slices[piece]
            if first < last:
                mode.all_reduce(values[first:last], reduction)

    def _down(self, values: Tensor) -> None:
        if self.local is not None:
            self.local.all_gather(values, self.layout.local_bounds(self.rank, values.numel()))

    def _pipelined(self, values: Tensor, reduction: Reduction) -> None:
        """Chunk n is on the network while chunk n + 1 goes up and chunk n - 1 comes down."""

        def rise(chunk: Tensor) -> list[Pending]:
            self._up(chunk, reduction)
            return self._start_over(chunk, reduction)

        in_order(torch.split(values, CHUNK_BYTES // values.element_size()), rise, self._down, self.under_way)

    def _start_over(self, values: Tensor, reduction: Reduction) -> list[Pending]:
        slices = even_bounds(values.numel(), self.layout.slices)
        return [
            mode.start_all_reduce(values[slice(*slices[piece])], reduction)
            for piece, mode in self.across.items()
            if slices[piece][0] < slices[piece][1]
        ]

    # -- what has parts, and broadcast ----------------------------------------------------------------

    def _turns(self, values: Tensor, bounds: Bounds) -> Iterable[tuple[Stretch, ...]]:
        return in_turns(bounds, -(-values.nbytes // COPY_CHUNK_BYTES))

    def _start_scatter(self, turn: _Turn, reduction: Reduction) -> list[Pending]:
        turn.take(range(len(turn.stretches)))
        if self.local is not None:
            bounds = turn.arrangement.local_bounds(self.layout, self.rank)
            self.local.reduce_scatter(turn.chunk, bounds, reduction)
        return [
            mode.start_reduce_scatter(*turn.slice(piece), reduction)
            if streams(mode)
            else self._threads[piece].submit(mode.reduce_scatter, *turn.slice(piece), reduction)
            for piece, mode in self.across.items()
            if turn.has(piece)
        ]

    def _start_gather(self, turn: _Turn) -> list[Pending]:
        turn.take([self.rank])
        return [
            mode.start_all_gather(*turn.slice(piece))
            if streams(mode)
            else self._threads[piece].submit(mode.all_gather, *turn.slice(piece))
            for piece, mode in self.across.items()
            if turn.has(piece)
        ]

    def _finish_gather(self, turn: _Turn) -> None:
        if self.local is not None:
            self.local.all_gather(turn.chunk, turn.arrangement.local_bounds(self.layout, self.rank))
        turn.put([rank for rank in range(len(turn.stretches)) if rank != self.rank])

    def _broadcast_in_chunks(self, values: Tensor, root: int) -> None:
        """From host to host among the owners of a slice of the root's, and from each of them to its host."""
        piece = self.layout.owned(root)[0]
        begins_at = self.layout.host_of(root)
        source = self.layout.locals_of(self.rank).index(self.layout.owner(self._host, piece))

        def start(chunk: Tensor) -> list[Pending]:
            if piece not in self.across:
                return []
            return [self._threads[piece].submit(self.across[piece].broadcast, chunk, begins_at)]

        def finish(chunk: Tensor) -> None:
            if self.local is not None:
                self.local.broadcast(chunk, source)

        in_order(torch.split(values, CHUNK_BYTES // values.element_size()), start, finish)

    def replace_modes(self, change: Callable[[str, Any, tuple[int, ...]], Any]) -> None:
        """Put another mode in the place of each, for those who watch; `change` gets the dimension and its ranks too."""
        if self.local is not None:
            self.local = change("host", self.local, self.layout.locals_of(self.rank))
        self.across = {
            piece: change("between hosts", mode, self.layout.owners(piece))
            for piece, mode in self.across.items()
        }
        self._whole = self._one_for_all()

    def close(self) -> None:
        for mode in (*self.across.values(), *((self.local,) if self.local else ())):
            mode.close()
        for thread in self._threads.values():
            thread.close()


class _Turn:
    """A piece of every rank's part, in memory of its own and in the order of the slices."""

    def __init__(self, layout: Layout, values: Tensor, stretches: Sequence[Stretch]) -> None:
        self.arrangement: Arrangement = arrange(layout, tuple(last - first for first, last in stretches))
        self.stretches = stretches
        self._values = values
        self.chunk = values[:0]

    def take(self, ranks: Iterable[int]) -> None:
        """Copy the pieces of these ranks from the tensor; memory is taken only now."""
        self.chunk = torch.empty(self.arrangement.count, dtype=self._values.dtype)
        for rank in ranks:
            self.chunk[slice(*self.arrangement.places[rank])] = self._values[slice(*self.stretches[rank])]

    def put(self, ranks: Iterable[int]) -> None:
        """Copy the pieces of these ranks to the tensor, and let go of the memory."""
        for rank in ranks:
            self._values[slice(*self.stretches[rank])] = self.chunk[slice(*self.arrangement.places[rank])]
        self.chunk = self._values[:0]

    def put_own(self, rank: int, output: Tensor, begin: int) -> None:
        """Copy the piece of one rank to its own tensor, which holds the part from element `begin` on."""
        first, last = self.stretches[rank]
        output[first - begin : last - begin] = self.chunk[slice(*self.arrangement.places[rank])]
        self.chunk = self._values[:0]

    def has(self, piece: int) -> bool:
        first, last = self.arrangement.slices[piece]
        return first < last

    def slice(self, piece: int) -> tuple[Tensor, Bounds]:
        return self.chunk[slice(*self.arrangement.slices[piece])], self.arrangement.parts_of(piece)


def in_order(
    items: Iterable[T],
    start: Callable[[T], list[Pending]],
    finish: Callable[[T], None],
    most: int = CHUNKS_UNDER_WAY,
) -> None:
    """Start each, and finish it when what it started has ended; a few are under way at a time."""
    under_way: deque[tuple[T, list[Pending]]] = deque()

    def finish_first() -> None:
        item, flows = under_way.popleft()
        for flow in flows:
            flow.wait()
        finish(item)

    for item in items:
        under_way.append((item, start(item)))
        if len(under_way) > most:
            finish_first()
    while under_way:
        finish_first()
