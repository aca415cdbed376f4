"""Mode `shm`: the ranks of one host reduce in memory they share.

A tensor goes through the arena in pieces. For each piece a rank writes what others will reduce into its slab, then
reduces its own part out of all slabs and its own tensor, then takes the other parts from those who reduced them. Two
ranks, or small pieces, skip the parts: everyone reduces everything, with one meeting instead of two and, for two ranks,
no more bytes.

The pieces move on through the slab (`Turns`). So nobody waits for the slowest reader of the piece before; and to write
where another core has just read is slow, because its cache must give up the memory line by line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import perf_counter

import torch
from torch import Tensor

from weft.collectives.modes.mode import Bounds, batches, even_bounds
from weft.collectives.modes.peers import DimensionPeers
from weft.collectives.modes.shared_memory.arena import GIVEN_UP, Arena, open_together, slab_bytes, unlink
from weft.collectives.modes.shared_memory.extent import FIRST, LEAST_BYTES, SlabExtent
from weft.collectives.modes.shared_memory.files import sweep
from weft.collectives.modes.tcp.signature import DIFFERS, signature
from weft.collectives.reduction import Reduction
from weft.collectives.torch_private import add_to_each, copy_each
from weft.errors import MismatchError, PeerError

SMALL_BYTES = 1 << 15  # up to here every rank reduces everything, however many there are
BLOCK_BYTES = 1 << 18  # reduced at once: slabs, result and tensor of a block stay in the second-level cache
SLOTS = 32  # at most as many pieces after another before the first place is used again
VIEWS_KEPT = 1024
BATCHES_KEPT = 256  # divisions of places among several tensors
_WIDE_BIT = 63  # of the word of a meeting, which signatures leave free
_NOT_WIDE = (1 << _WIDE_BIT) - 1


class Turns:
    """The place in the slabs where the next piece goes: the same on all ranks, as long as they make the same calls.

    Places are a half, a quarter, ... of a slab. A rank that writes a piece has met the others over the one before, so
    they are done with all but that one; and no place overlaps the one before it.
    """

    def __init__(self, least_bytes: int, most_bytes: int | None = None) -> None:
        self._least_bytes = least_bytes
        self._most_bytes = most_bytes or least_bytes
        self._end = 0

    def next(self, nbytes: int, *, wide: bool = False) -> int:
        """The first byte of a place for so many, at most half of the least; wide: go through all of the slab."""
        room = max(1, self._least_bytes // SLOTS)
        while room < nbytes:
            room *= 2
        begin = -(-self._end // room) * room
        if begin + room > (self._most_bytes if wide else self._least_bytes):
            begin = 0
        self._end = begin + room
        return begin


class SharedMemory:
    """Collectives in an arena."""

    name = "shm"

    def __init__(
        self,
        arena: Arena,
        *,
        timeout_s: float,
        near_bytes: int = 0,  # of each slab, that pieces go through where that is best
        describe: Callable[[int, str], str] = lambda peer, what: f"peer {peer} {what}",
    ) -> None:
        self.index, self.size = arena.index, arena.size
        self._arena = arena
        self._timeout_s = timeout_s
        self._describe = describe
        self._count = 0
        self._what = 0  # we are doing; all must do the same, or they would mix their bytes
        least = min(near_bytes or arena.slab_bytes, arena.slab_bytes)
        self._turns = Turns(least, arena.slab_bytes)
        self._most_bytes = least // 2 // 16 * 16  # in a piece: whole elements of any type
        # Peer 0 decides, and says so with the word of every meeting; it holds from the next piece on.
        self._extent = SlabExtent() if self.index == 0 and least < arena.slab_bytes else None
        self._wide = False
        self._unwatched = 0  # pieces before we look again whether the extent wants to know
        # Replaced as a whole when another thread gives the group up, so that an operation has all of them or none.
        self._slabs = tuple(arena.slab(peer) for peer in range(self.size))
        self._others = [peer for peer in range(self.size) if peer != self.index]
        # Everyone's place, by its first byte and what it holds: to make views takes longer than a small reduction.
        self._views: dict[tuple[int, torch.dtype, int], tuple[list[Tensor], int]] = {}
        self._parts: dict[tuple[int, torch.dtype, tuple[int, ...]], list[Tensor]] = {}  # of the peer's

    @classmethod
    def connect(cls, peers: DimensionPeers) -> SharedMemory:
        """Map memory that the peers share; a collective call."""
        try:
            return cls._connect(peers)
        except BaseException:
            sweep()  # the maker may have died before it came to unlink the file, and perhaps nobody makes another
            raise

    @classmethod
    def _connect(cls, peers: DimensionPeers) -> SharedMemory:
        cores = os.cpu_count() or 1
        near = slab_bytes(peers.size, cores)
        file, descriptor, slab = open_together(peers, near)
        try:
            pids = [member.pid for member in peers.members]
            shared = Arena(descriptor, index=peers.index, pids=pids, slab_bytes=slab)
            mode = cls(shared, timeout_s=peers.timeout_s, near_bytes=near, describe=peers.describe)
            mode.barrier()
        finally:
            if peers.index == 0:
                unlink(file)  # all have it open, or never will
        if slab > near and peers.size <= cores and not peers.short_lived:
            mode.settle()
        return mode

    # -- meeting ----------------------------------------------------------------------------------

    def _arrive(self) -> int:
        self._count += 1
        if self._extent is not None:
            self._wide = self._extent.wide
        self._arena.advance(
            self._count, self._what | self._wide << _WIDE_BIT if self.index == 0 else self._what
        )
        return self._count

    def _await(self, peer: int, count: int) -> None:
        self._arena.await_peer(peer, count, self._timeout_s, self._describe)
        word = self._arena.word(peer, count)
        if peer == 0:
            self._wide = word > _NOT_WIDE
            word &= _NOT_WIDE
        if word != self._what:
            if self._arena.closed:  # and the word was nobody's
                raise PeerError(self._describe(peer, GIVEN_UP))
            raise MismatchError(f"{self._describe(peer, DIFFERS)}; use --debug to see both sides")

    def _await_all(self, count: int) -> None:
        for peer in self._others:
            self._await(peer, count)

    def _meet(self) -> None:
        self._await_all(self._arrive())

    def settle(self) -> None:
        """Find out how near the peers are, before anything else; a collective call of a few milliseconds."""
        values = torch.zeros(LEAST_BYTES * 2 // 4)
        for _ in range(FIRST):
            self.all_reduce(values, Reduction("MAX"))

    def barrier(self) -> None:
        self._what = signature("barrier")
        self._meet()

    def _places(self, piece: Tensor, doing: int) -> list[Tensor]:
        """Return where each peer's values of the next piece go; `doing` is what is done with them."""
        return self._places_of(piece.dtype, piece.numel(), piece.nbytes, doing)[1]

    def _places_of(self, dtype: torch.dtype, count: int, nbytes: int, doing: int) -> tuple[int, list[Tensor]]:
        """Return the first byte of the next piece in each slab, and where each peer's values of it go."""
        begin = self._turns.next(nbytes, wide=self._wide)
        key = (begin, dtype, count)
        if (found := self._views.get(key)) is None:
            if len(self._views) == VIEWS_KEPT:
                self._views.clear()
            views = [slab[begin : begin + nbytes].view(dtype) for slab in self._slabs]
            if not views:
                raise PeerError(self._describe(self._others[0] if self._others else self.index, GIVEN_UP))
            found = self._views[key] = (views, signature("piece", dtype, count))
        self._what = found[1] ^ doing
        return begin, found[0]

    def _pieces(self, values: Tensor) -> Sequence[Tensor]:
        if values.nbytes <= self._most_bytes:
            return (values,)
        return torch.split(values, self._most_bytes // values.element_size())

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        for piece in self._pieces(values):
            if self.size == 2:
                self._all_reduce_two(piece, reduction)
            elif piece.nbytes <= SMALL_BYTES:
                self._all_reduce_small(piece, reduction)
            else:
                bounds = even_bounds(piece.numel(), self.size)
                places = self._reduce_part(piece, bounds, reduction, publish=True)
                self._take_parts(piece, bounds, places)

    def all_reduce_many(
        self, tensors: Sequence[Tensor], reduction: Reduction, after: Callable[[list[Tensor]], None]
    ) -> None:
        """Reduce tensors of one type as if they lay side by side, which they do in the slabs alone.

        `after` is given the reduced tensors, or parts of them, while they are still in the cache.
        """
        for batch in batches(tensors, self._most_bytes):
            if self.size == 2 and len(batch) > 1:
                self._reduce_batch(batch, reduction)
            elif len(batch) > 1:
                counts = [values.numel() for values in batch]
                together = torch.cat(batch)
                self.all_reduce(together, reduction)
                copy_each(batch, list(torch.split(together, counts)))
            else:
                self.all_reduce(batch[0], reduction)
            after(batch)

    def _reduce_batch(self, batch: list[Tensor], reduction: Reduction) -> None:
        counts = tuple([values.numel() for values in batch])
        dtype, count = batch[0].dtype, sum(counts)
        nbytes = count * batch[0].element_size()
        begin, places = self._places_of(dtype, count, nbytes, signature(reduction.name))
        key = (begin, dtype, counts)
        if (theirs := self._parts.get(key)) is None:
            if len(self._parts) == BATCHES_KEPT:
                self._parts.clear()
            theirs = self._parts[key] = list(torch.split(places[1 - self.index], list(counts)))
        torch.cat(batch, out=places[self.index])  # half the time of as many copies
        self._meet()
        if reduction.name in ("SUM", "AVG") and dtype is not torch.bool:
            add_to_each(batch, theirs)  # a + b is b + a, to the bit
            return
        for values, other in zip(batch, theirs, strict=True):
            left, right = (values, other) if self.index == 0 else (other, values)
            reduction.combine(left, right, values)

    def _all_reduce_two(self, piece: Tensor, reduction: Reduction) -> None:
        places = self._places(piece, signature(reduction.name))
        if self.index == 1:
            places[1].copy_(piece)
            self._meet()
            reduction.combine(places[0], piece, piece)
            return
        began = perf_counter()
        places[0].copy_(piece)
        copied = perf_counter() - began
        self._meet()
        began = perf_counter()
        reduction.combine(piece, places[1], piece)
        self._note(piece, copied + perf_counter() - began)

    def _note(self, piece: Tensor, seconds: float) -> None:
        """Tell the extent what a piece cost, if we have one and it wants to know."""
        self._unwatched -= 1
        if self._extent is None or self._unwatched > 0:
            return
        if self._extent.resting:
            self._unwatched = 64
        else:
            self._extent.note(piece.nbytes, seconds)

    def _all_reduce_small(self, piece: Tensor, reduction: Reduction) -> None:
        places = self._places(piece, signature(reduction.name))
        places[self.index].copy_(piece)
        self._meet()
        reduction.combine(places[0], places[1], piece)
        for place in places[2:]:
            reduction.combine(piece, place, piece)

    def _reduce_part(
        self, piece: Tensor, bounds: Bounds, reduction: Reduction, *, publish: bool
    ) -> list[Tensor]:
        """Reduce our part of a piece in the order of the peers; publish: leave it in our place for the others."""
        places = self._places(piece, signature(reduction.name, publish or tuple(bounds)))
        mine = places[self.index]
        began = perf_counter()
        for peer in self._others:
            first, last = bounds[peer]
            mine[first:last].copy_(piece[first:last])
        copied = perf_counter() - began
        self._meet()
        began = perf_counter()
        step = max(1, BLOCK_BYTES // piece.element_size())
        begin, end = bounds[self.index]
        for first in range(begin, end, step):
            last = min(end, first + step)
            own = piece[first:last]
            terms = [own if peer == self.index else places[peer][first:last] for peer in range(self.size)]
            if self.size == 1:
                continue
            # `own` may be the target only once it has been read: that is in the first step for peers 0 and 1.
            target = own if self.index < 2 else mine[first:last]
            reduction.combine(terms[0], terms[1], target)
            for term in terms[2:]:
                reduction.combine(target, term, target)
            if publish and target is own:
                mine[first:last].copy_(own)
            elif target is not own:
                own.copy_(target)
        if publish:
            self._note(piece, copied + perf_counter() - began)
        return places

    def _take_parts(self, piece: Tensor, bounds: Bounds, places: list[Tensor]) -> None:
        """Copy every other part from the place of the peer it belongs to."""
        count = self._arrive()
        for offset in range(1, self.size):
            peer = (self.index + offset) % self.size  # not all from the same one at once
            self._await(peer, count)
            first, last = bounds[peer]
            piece[first:last].copy_(places[peer][first:last])

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        for piece, part in self._bounded_pieces(values, bounds):
            self._reduce_part(piece, part, reduction, publish=False)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        for piece, part in self._bounded_pieces(values, bounds):
            places = self._places(piece, signature("all_gather", tuple(part)))
            first, last = part[self.index]
            places[self.index][first:last].copy_(piece[first:last])
            self._take_parts(piece, part, places)

    def broadcast(self, values: Tensor, root: int) -> None:
        for piece in self._pieces(values):
            place = self._places(piece, signature("broadcast", root))[root]
            if self.index == root:
                place.copy_(piece)
            self._meet()
            if self.index != root:
                piece.copy_(place)

    def _bounded_pieces(self, values: Tensor, bounds: Bounds) -> Sequence[tuple[Tensor, Bounds]]:
        """Pieces of the tensor, each with the stretches of the parts that lie in it."""
        pieces = []
        begin = 0
        for piece in self._pieces(values):
            end = begin + piece.numel()
            clipped = [
                (min(max(first, begin), end) - begin, min(max(last, begin), end) - begin)
                for first, last in bounds
            ]
            pieces.append((piece, clipped))
            begin = end
        return pieces

    def close(self) -> None:
        self._arena.close()
        self._slabs = ()
        self._views.clear()
        self._parts.clear()
