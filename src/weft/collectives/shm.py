"""Mode `shm`: the ranks of one host reduce in memory they share.

A tensor goes through the arena in pieces. For each piece a rank writes what others will reduce into its slab, then
reduces its own part out of all slabs and its own tensor, then takes the other parts from those who reduced them. Two
halves of a slab take turns, so that nobody waits for the slowest reader of the piece before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from weft.collectives.arena import Arena
from weft.collectives.mode import Bounds, even_bounds
from weft.collectives.reduction import Reduction

SMALL_BYTES = 1 << 15  # up to here every rank reduces everything: one meeting instead of two
BLOCK_BYTES = 1 << 18  # reduced at once: slabs, result and tensor of a block stay in the second-level cache


class SharedMemory:
    """Collectives in an arena."""

    def __init__(
        self,
        arena: Arena,
        *,
        timeout_s: float,
        describe: Callable[[int, str], str] = lambda peer, what: f"peer {peer} {what}",
    ) -> None:
        self.index, self.size = arena.index, arena.size
        self._arena = arena
        self._timeout_s = timeout_s
        self._describe = describe
        self._count = 0
        self._turn = 0
        self._half_bytes = arena.slab_bytes // 2
        self._slabs = [arena.slab(peer) for peer in range(self.size)]
        self._others = [peer for peer in range(self.size) if peer != self.index]
        # Views of every half-slab in every type used so far: making one takes longer than a small reduction.
        self._views: dict[torch.dtype, list[list[Tensor]]] = {}

    # -- meeting ----------------------------------------------------------------------------------

    def _arrive(self) -> int:
        self._count += 1
        self._arena.advance(self._count)
        return self._count

    def _await_all(self, count: int) -> None:
        for peer in self._others:
            self._arena.await_peer(peer, count, self._timeout_s, self._describe)

    def _meet(self) -> None:
        self._await_all(self._arrive())

    def barrier(self) -> None:
        self._meet()

    def _halves(self, dtype: torch.dtype) -> list[Tensor]:
        """Everyone's half-slab whose turn it is."""
        if dtype not in self._views:
            whole = self._half_bytes // 16 * 16  # in elements of any type
            self._views[dtype] = [
                [slab[half * self._half_bytes :][:whole].view(dtype) for slab in self._slabs]
                for half in (0, 1)
            ]
        self._turn ^= 1
        return self._views[dtype][self._turn]

    def _pieces(self, values: Tensor) -> Sequence[Tensor]:
        most = self._half_bytes // 16 * 16 // values.element_size()
        return torch.split(values, most) if values.numel() > most else (values,)

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        for piece in self._pieces(values):
            if piece.nbytes <= SMALL_BYTES:
                self._all_reduce_small(piece, reduction)
            else:
                bounds = even_bounds(piece.numel(), self.size)
                self._reduce_part(piece, bounds, reduction, publish=True)
                self._take_parts(piece, bounds)

    def _all_reduce_small(self, piece: Tensor, reduction: Reduction) -> None:
        count = piece.numel()
        halves = self._halves(piece.dtype)
        halves[self.index][:count].copy_(piece)
        self._meet()
        reduction.combine(halves[0][:count], halves[1][:count], piece)
        for half in halves[2:]:
            reduction.combine(piece, half[:count], piece)
        # No second meeting: this half is written again two turns from now, after a meeting in between.

    def _reduce_part(self, piece: Tensor, bounds: Bounds, reduction: Reduction, *, publish: bool) -> None:
        """Reduce our part of a piece in the order of the peers; publish: leave it in our slab for the others."""
        halves = self._halves(piece.dtype)
        mine = halves[self.index]
        for peer in self._others:
            first, last = bounds[peer]
            mine[first:last].copy_(piece[first:last])
        self._meet()
        step = max(1, BLOCK_BYTES // piece.element_size())
        begin, end = bounds[self.index]
        for first in range(begin, end, step):
            last = min(end, first + step)
            own = piece[first:last]
            terms = [own if peer == self.index else halves[peer][first:last] for peer in range(self.size)]
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

    def _take_parts(self, piece: Tensor, bounds: Bounds) -> None:
        """Copy every other part from the slab of the peer it belongs to."""
        count = self._arrive()
        halves = self._views[piece.dtype][self._turn]
        for offset in range(1, self.size):
            peer = (self.index + offset) % self.size  # not all from the same one at once
            self._arena.await_peer(peer, count, self._timeout_s, self._describe)
            first, last = bounds[peer]
            piece[first:last].copy_(halves[peer][first:last])

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        for piece, part in self._bounded_pieces(values, bounds):
            self._reduce_part(piece, part, reduction, publish=False)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        for piece, part in self._bounded_pieces(values, bounds):
            halves = self._halves(piece.dtype)
            first, last = part[self.index]
            halves[self.index][first:last].copy_(piece[first:last])
            self._take_parts(piece, part)

    def broadcast(self, values: Tensor, root: int) -> None:
        for piece in self._pieces(values):
            half = self._halves(piece.dtype)[root][: piece.numel()]
            if self.index == root:
                half.copy_(piece)
            self._meet()
            if self.index != root:
                piece.copy_(half)

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
        self._views.clear()
        self._slabs.clear()
        self._arena.close()
