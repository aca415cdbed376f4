"""Host memory for copies, taken in large slabs and handed out in pieces.

To pin memory takes long (see `pinning`), and torch's own host allocator rounds every piece up to a power of two, which
wastes up to half of it. So slabs are pinned once, are little larger than the largest piece asked for, and are not given
back as long as there is use for them, or no need of others.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from weft.errors import BudgetError
from weft.text import format_size, round_up_size

PAGE = 4096
SLAB = 256 << 20


@dataclass(eq=False)
class Block:
    """A piece of host memory; `ticket` is the last copy that used it, which whoever gets it next must wait for."""

    slab: int
    start: int
    size: int  # as asked for
    room: int  # as taken
    tensor: torch.Tensor
    ticket: Any = None


@dataclass
class Slabs:
    """Hands out blocks, best fit first."""

    limit: int
    make: Callable[[int], torch.Tensor]  # a flat uint8 tensor of host memory
    slab: int = SLAB
    slabs: list[torch.Tensor] = field(default_factory=list)
    free: list[list[tuple[int, int, Any]]] = field(default_factory=list)  # by slab: start, room, ticket
    held: int = 0
    used: int = 0
    later: deque[Block] = field(
        default_factory=deque
    )  # given back by whoever died, on any thread, at any moment

    def take(self, size: int) -> Block:
        self.collect()
        room = -(-size // PAGE) * PAGE
        slab, place = self._best(room)
        start, whole, ticket = self.free[slab].pop(place)
        if whole > room:
            insort(self.free[slab], (start + room, whole - room, ticket), key=_start)
        self.used += room
        return Block(slab, start, size, room, self.slabs[slab][start : start + size], ticket)

    def collect(self) -> None:
        """Take in what was given back without a word."""
        while self.later:
            self.give_back(self.later.popleft())

    def give_back(self, block: Block) -> None:
        self.used -= block.room
        pieces = self.free[block.slab]
        insort(pieces, (block.start, block.room, block.ticket), key=_start)
        self._merge(pieces, block.start)

    def _merge(self, pieces: list[tuple[int, int, Any]], start: int) -> None:
        """Join with the neighbours."""
        place = next(index for index, piece in enumerate(pieces) if piece[0] == start)
        for left in (place, place - 1):
            if 0 <= left < len(pieces) - 1:
                (first, room, ticket), (second, more, other) = pieces[left], pieces[left + 1]
                if first + room == second:
                    pieces[left : left + 2] = [(first, room + more, _both(ticket, other))]

    def _best(self, room: int) -> tuple[int, int]:
        fitting = [
            (whole, slab, place)
            for slab, pieces in enumerate(self.free)
            for place, (_, whole, _) in enumerate(pieces)
            if whole >= room
        ]
        if fitting:
            _, slab, place = min(fitting)
            return slab, place
        return self._grow(room), 0

    def _grow(self, room: int) -> int:
        size = max(self.slab, round_room(room))
        if self.held + size > self.limit:
            size = max(room, (self.limit - self.held) // PAGE * PAGE)
        free = [index for index, pieces in enumerate(self.free) if pieces and self._is_free(index)]
        if self.held + size - sum(self.slabs[index].numel() for index in free) > self.limit:
            raise BudgetError(
                f"host must hold what is swapped, {format_size(self.held + size)} so far, got "
                f"{format_size(self.limit)}; write host='{round_up_size(2 * (self.held + size))}' or a larger limit"
            )
        # Those that are free are too small for what is asked for now; the largest go first.
        for index in sorted(free, key=lambda index: self.slabs[index].numel(), reverse=True):
            if self.held + size > self.limit:
                self._put(index, 0)
        place = next((index for index, slab in enumerate(self.slabs) if not slab.numel()), len(self.slabs))
        self._put(place, size)
        return place

    def _put(self, index: int, size: int) -> None:
        """A slab of another size in the place of one that is free, or beside all others."""
        if index == len(self.slabs):
            self.slabs.append(torch.empty(0, dtype=torch.uint8))
            self.free.append([])
        self.held -= self.slabs[index].numel()
        self.slabs[index], self.free[index] = torch.empty(0, dtype=torch.uint8), []  # before another is made
        if size:
            self.slabs[index], self.free[index] = self.make(size), [(0, size, None)]
            self.held += size

    def _is_free(self, index: int) -> bool:
        return sum(room for _, room, _ in self.free[index]) == self.slabs[index].numel()

    def release(self) -> None:
        """Give all slabs back to the system; only when nothing is in use."""
        self.collect()
        if self.used == 0:
            self.slabs.clear()
            self.free.clear()
            self.held = 0


def round_room(room: int) -> int:
    """A little more, so that tensors of nearly the same size find room in the same slab."""
    grain = max(PAGE, 1 << max(0, room.bit_length() - 4))
    return -(-room // grain) * grain


def _start(piece: tuple[int, int, Any]) -> int:
    return piece[0]


def _both(first: Any, second: Any) -> Any:
    """Tickets of two blocks that become one: keep all that whoever gets it must wait for."""
    if first is None or first is second:
        return second
    if second is None:
        return first
    return (*tickets(first), *tickets(second))


def tickets(ticket: Any) -> tuple[Any, ...]:
    """One ticket or several, as several."""
    if ticket is None:
        return ()
    return ticket if isinstance(ticket, tuple) else (ticket,)
