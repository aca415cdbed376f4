"""Host memory for copies: pinned in large slabs, handed out in blocks.

Pinning takes long: the pages have to be made first, for which one thread takes half a second for each GiB. Several
threads make them in a tenth of that, and large pages are fewer to pin; then the device is told of memory that is there
already. torch's own host allocator rounds every piece up to a power of two, which wastes up to half of it. So slabs are
little larger than the largest block asked for, and stay pinned as long as there is use for them, or no need of others.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from weft.errors import BudgetError
from weft.lms.tuning import DEFAULTS
from weft.text import format_size, round_up_size

cuda: Any = torch.cuda
PAGE_BYTES = 4096  # of the system; blocks begin and end at one
MADV_HUGEPAGE = 14
MADV_WIPEONFORK = 18  # a child process, such as a DataLoader's, gets empty pages: else all would be copied
HOST_REGISTER_PORTABLE = 1  # pinned for all devices


@dataclass(eq=False, slots=True)
class CopyTicket:
    """A copy that was started. Copies of one `queue` end in the order of their numbers."""

    queue: str
    number: int
    done: Any  # what tells the end of the copy, in the words of its device


class CopyCounter:
    """The numbers of a device's copies, in the order in which they are started."""

    def __init__(self) -> None:
        self._count = 0

    def ticket(self, queue: str, done: Any) -> CopyTicket:
        self._count += 1
        return CopyTicket(queue, self._count, done)


# The last copy of each queue that used a piece of memory: when these have ended, all earlier ones have, too.
LastCopies = tuple[CopyTicket, ...]


@dataclass(eq=False)
class Block:
    """A piece of host memory; `last` are the copies that used it, which its next user must wait for."""

    slab: int
    start: int
    size: int  # bytes asked for
    room: int  # bytes taken: whole pages
    tensor: torch.Tensor
    last: LastCopies = ()


FreePiece = tuple[int, int, LastCopies]  # start, room


@dataclass
class Slabs:
    """Slabs of host memory, handed out in blocks: the smallest free piece that fits is taken first."""

    limit: int  # bytes
    make: Callable[[int], torch.Tensor]  # makes a flat uint8 tensor of host memory
    slab: int = DEFAULTS.slab_bytes  # the least that is made at once
    slabs: list[torch.Tensor] = field(default_factory=list)
    free: list[list[FreePiece]] = field(default_factory=list)  # by slab
    held: int = 0  # bytes of all slabs
    used: int = 0  # bytes of all blocks
    later: deque[Block] = field(default_factory=deque)  # given back by objects that died, on any thread

    def take(self, size: int) -> Block:
        """Hand out a block; BudgetError when the limit is reached."""
        self.collect()
        room = -(-size // PAGE_BYTES) * PAGE_BYTES
        slab, place = self._best(room)
        start, whole, last = self.free[slab].pop(place)
        if whole > room:
            insort(self.free[slab], (start + room, whole - room, last), key=_start)
        self.used += room
        return Block(slab, start, size, room, self.slabs[slab][start : start + size], last)

    def collect(self) -> None:
        """Take back the blocks in `later`."""
        while self.later:
            self.give_back(self.later.popleft())

    def give_back(self, block: Block) -> None:
        self.used -= block.room
        pieces = self.free[block.slab]
        insort(pieces, (block.start, block.room, block.last), key=_start)
        self._merge(pieces, block.start)

    def _merge(self, pieces: list[FreePiece], start: int) -> None:
        """Join a free piece with its free neighbours."""
        place = bisect_left(pieces, start, key=_start)
        for left in (place, place - 1):
            if 0 <= left < len(pieces) - 1:
                (first, room, last), (second, more, other) = pieces[left], pieces[left + 1]
                if first + room == second:
                    pieces[left : left + 2] = [(first, room + more, latest(last, other))]

    def _best(self, room: int) -> tuple[int, int]:
        """Return the slab and the place of the free piece to take, in a new slab if there is none."""
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
        """Make a slab that holds `room` bytes, in the place of free ones if need be; return its index."""
        size = max(self.slab, round_room(room))
        if self.held + size > self.limit:
            size = max(room, (self.limit - self.held) // PAGE_BYTES * PAGE_BYTES)
        free = [index for index, pieces in enumerate(self.free) if pieces and self._is_free(index)]
        if self.held + size - sum(self.slabs[index].numel() for index in free) > self.limit:
            raise BudgetError(
                f"host must hold what is swapped, {format_size(self.held + size)} so far, got "
                f"{format_size(self.limit)}; write host='{round_up_size(2 * (self.held + size))}' or a larger limit"
            )
        # Free slabs are too small for what is asked for now; the largest are given up first.
        for index in sorted(free, key=lambda index: self.slabs[index].numel(), reverse=True):
            if self.held + size > self.limit:
                self._replace(index, 0)
        place = next((index for index, slab in enumerate(self.slabs) if not slab.numel()), len(self.slabs))
        self._replace(place, size)
        return place

    def _replace(self, index: int, size: int) -> None:
        """Put a slab of `size` bytes in the place of a free one, or after all others."""
        if index == len(self.slabs):
            self.slabs.append(torch.empty(0, dtype=torch.uint8))
            self.free.append([])
        self.held -= self.slabs[index].numel()
        self.slabs[index], self.free[index] = torch.empty(0, dtype=torch.uint8), []  # before another is made
        if size:
            self.slabs[index], self.free[index] = self.make(size), [(0, size, ())]
            self.held += size

    def _is_free(self, index: int) -> bool:
        return sum(room for _, room, _ in self.free[index]) == self.slabs[index].numel()

    def release(self) -> None:
        """Give all slabs back to the system, unless a block is in use."""
        self.collect()
        if self.used == 0:
            self.slabs.clear()
            self.free.clear()
            self.held = 0


def round_room(room: int) -> int:
    """Return a little more than `room` bytes, so that tensors of nearly that size fit in the same slab."""
    grain = max(PAGE_BYTES, 1 << max(0, room.bit_length() - 4))
    return -(-room // grain) * grain


def _start(piece: FreePiece) -> int:
    return piece[0]


def latest(first: LastCopies, second: LastCopies) -> LastCopies:
    """Return the last copy of each queue among those of two pieces that become one."""
    if not first or not second or first is second:
        return first or second
    found = {ticket.queue: ticket for ticket in first}
    for ticket in second:
        known = found.get(ticket.queue)
        if known is None or known.number < ticket.number:
            found[ticket.queue] = ticket
    return tuple(found.values())


def pinned(size: int) -> torch.Tensor:
    """Make a flat tensor of pinned bytes, to and from which the device copies by itself; BudgetError if it cannot."""
    try:
        found = _registered(size) if size >= DEFAULTS.registered_bytes else None
        return torch.empty(size, dtype=torch.uint8, pin_memory=True) if found is None else found
    except (RuntimeError, OSError, MemoryError) as error:
        raise BudgetError(
            f"host memory must be free for {format_size(size)} of pinned pages, got {error}; "
            "give a smaller host= or a larger limit="
        ) from None


def _registered(size: int) -> torch.Tensor | None:
    """Make pages and register them with the device; None where it does not take memory that it did not make."""
    pages = RegisteredPages(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for advice in (MADV_HUGEPAGE, MADV_WIPEONFORK):
        with suppress(OSError, ValueError):  # where the system does not know the advice
            pages.madvise(advice)
    flat = torch.frombuffer(pages, dtype=torch.uint8)  # which holds on to the pages
    fill(flat.data_ptr(), size, min(DEFAULTS.fill_threads, os.cpu_count() or 1))
    if pages.register(flat.data_ptr()):
        return flat
    with suppress(Exception):  # the refusal would be taken for that of whatever is launched next
        torch.zeros(1, device="cuda")
    return None


def fill(address: int, size: int, threads: int) -> None:
    """Make all pages, by writing to them from several threads; ctypes releases the interpreter's lock meanwhile."""
    piece = DEFAULTS.fill_piece_bytes

    def written(start: int) -> None:
        ctypes.memset(address + start, 0, min(piece, size - start))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(written, range(0, size, piece)))


class RegisteredPages(mmap.mmap):
    """Memory of the system that the device knows; the device lets go of it first."""

    _address: int | None = None
    _process = 0

    def register(self, address: int) -> bool:
        """Pin the pages; return whether the device took them."""
        done = int(cuda.cudart().cudaHostRegister(address, len(self), HOST_REGISTER_PORTABLE)) == 0
        self._address, self._process = (address if done else None), os.getpid()
        return done

    def __del__(self) -> None:
        if self._address is not None and self._process == os.getpid():
            with suppress(Exception):
                cuda.synchronize()  # a copy may be under way
            with suppress(Exception):  # at the end of the process there may be no runtime any more
                cuda.cudart().cudaHostUnregister(self._address)
