"""A sparse index of the lines of a growing log: how many lines each megabyte of it begins after.

Eight bytes for each megabyte, kept in a file beside the log, so that a line number of a large log is found, and the
line of a number, by reading one megabyte.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path

BLOCK_BYTES = 1 << 20


class LineIndex:
    """The lines of one log, counted as far as it is complete blocks."""

    def __init__(self, log: Path, kept: Path | None = None) -> None:
        self._log, self._kept = log, kept
        self._before = array("Q", [0])  # lines before each block
        self._last = -1, b""  # the block that was read last: lines that are asked for lie close together
        if kept is not None:
            self._read_kept(kept)

    def _read_kept(self, kept: Path) -> None:
        with suppress(OSError, ValueError):
            data = kept.read_bytes()
            numbers = array("Q", data[: len(data) // 8 * 8])
            if len(numbers) * BLOCK_BYTES <= self._log.stat().st_size and list(numbers) == sorted(numbers):
                self._before = array("Q", [0, *numbers])

    def number_at(self, offset: int) -> int:
        """Return the number, from 1, of the line that begins at an offset."""
        block = offset // BLOCK_BYTES
        self._count_to(block)
        block = min(block, len(self._before) - 1)
        inside = offset - block * BLOCK_BYTES
        if self._last[0] != block or len(self._last[1]) < inside:
            with self._log.open("rb") as file:
                file.seek(block * BLOCK_BYTES)
                self._last = block, file.read(max(inside, BLOCK_BYTES))
        return self._before[block] + self._last[1].count(b"\n", 0, inside) + 1

    def offset_of(self, number: int) -> int:
        """Return where a line begins, from 1; the end of the log if it has not so many."""
        size = self._log.stat().st_size
        self._count_to(size // BLOCK_BYTES)
        wanted = number - 1  # line ends before it
        block = max(0, bisect_left(self._before, max(1, wanted)) - 1) if wanted > 0 else 0
        with self._log.open("rb") as file:
            file.seek(block * BLOCK_BYTES)
            place, left = block * BLOCK_BYTES, wanted - self._before[block]
            while left > 0:
                data = file.read(BLOCK_BYTES)
                if not data:
                    return size
                count = data.count(b"\n")
                if count >= left:
                    inside = -1
                    for _ in range(left):
                        inside = data.find(b"\n", inside + 1)
                    return place + inside + 1
                left -= count
                place += len(data)
        return place

    def _count_to(self, block: int) -> None:
        """Count the lines of all complete blocks before one."""
        new = array("Q")
        last = self._before[-1]
        with self._log.open("rb") as file:
            file.seek((len(self._before) - 1) * BLOCK_BYTES)
            for _ in range(len(self._before) - 1, block):
                data = file.read(BLOCK_BYTES)
                if len(data) < BLOCK_BYTES:
                    break
                last += data.count(b"\n")
                new.append(last)
        if new:
            self._before.extend(new)
            self._keep(new)

    def _keep(self, new: array[int]) -> None:
        """Add to the file of the index, unless another has; without one the lines are counted again next time."""
        if self._kept is None:
            return
        with suppress(OSError):
            self._kept.parent.mkdir(0o700, exist_ok=True)
            descriptor = os.open(self._kept, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if os.fstat(descriptor).st_size == 8 * (len(self._before) - 1 - len(new)):
                    os.write(descriptor, new.tobytes())
            finally:
                os.close(descriptor)
