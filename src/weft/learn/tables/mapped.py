"""Rows of a file that is mapped into memory, and the window of it that stays there."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

NEIGHBOURHOOD = 1 << 21  # bytes that the operating system may read around a page


class Mapped:
    """Rows on disk with the few methods of an array that fits use: shape, type, rows by slice or by number."""

    def __init__(self, array: Array, window_bytes: int):
        self.array = np.asarray(array)
        self.window = Window(array, window_bytes)
        self.shape, self.dtype, self.size, self.ndim = array.shape, array.dtype, array.size, 2

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, slice) and key.step is None:
            self.window.at(key.start or 0, len(self) if key.stop is None else key.stop)
            part: Array = self.array[key]
            return part
        return self._scattered(key)

    def _scattered(self, key: Any) -> Array:
        """Return a copy of scattered rows; pages read around them are released again and again."""
        rows = (
            np.array(range(*key.indices(len(self))), np.intp) if isinstance(key, slice) else np.asarray(key)
        )
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        part = np.empty((len(rows), self.shape[1]), self.dtype)
        step = max(1, self.window.size // NEIGHBOURHOOD)
        for start in range(0, len(rows), step):
            part[start : start + step] = self.array[rows[start : start + step]]
            self.window.let_go()
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.array, dtype)


class Window:
    """The part of a mapped array that stays in memory: the next rows are read ahead, past ones are released."""

    def __init__(self, values: Array, size: int):
        self._map = map_of(values)
        self._begin = int(getattr(_root(values), "offset", 0))
        self._row = int(np.prod(values.shape[1:])) * values.itemsize
        self.size = max(size, mmap.PAGESIZE)
        self._ahead = -1

    def at(self, start: int, stop: int) -> None:
        """Announce that rows start:stop will be read now, and the following ones after them."""
        if self._map is None:
            return
        place = (self._begin % mmap.ALLOCATIONGRANULARITY) + start * self._row
        window = place // self.size
        if window == self._ahead:
            return
        self._ahead = window
        self._advise(mmap.MADV_WILLNEED, (window + 1) * self.size, self.size)
        # The previous window stays, too: other threads may still read it.
        self._advise(mmap.MADV_DONTNEED, 0, max(0, window - 1) * self.size)
        if window <= 1:
            self._advise(mmap.MADV_DONTNEED, (window + 2) * self.size, len(self._map))

    def let_go(self, start: int = 0, length: int | None = None) -> None:
        """Release all of the array, or `length` bytes from `start`, from memory."""
        self._ahead = -1
        if self._map is not None:
            self._advise(mmap.MADV_DONTNEED, start, len(self._map) if length is None else length)

    def _advise(self, what: int, start: int, length: int) -> None:
        start -= start % mmap.PAGESIZE
        length = min(length, len(self._map) - start)
        if length > 0:
            self._map.madvise(what, start, length)


def _root(values: Any) -> Any:
    while isinstance(getattr(values, "base", None), np.ndarray) and not isinstance(
        getattr(values, "base", None), mmap.mmap
    ):
        values = values.base
    return values


def map_of(values: Array) -> Any:
    return getattr(_root(values), "_mmap", None)
