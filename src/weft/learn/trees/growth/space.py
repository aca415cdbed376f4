"""Memory that trees are grown in, kept from one to the next."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BUDGET_BYTES = 1 << 29  # of histograms that are kept at once


class Space:
    """Memory that one tree after the other is grown in: to get it anew costs as much as some of the work."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self.compiled: set[int | None] = set()  # the criteria that the kernel of whole trees is there for
        self.rules: Any = None  # of the tree before, with what they were made of
        self.whole: Any = None  # what the kernel of whole trees is always called with, and for which rules

    def like(self, name: str, array: Array) -> Array:
        """An array of the same shape and type, with anything in it."""
        kept = self._arrays.get(name)
        if kept is None or kept.shape != array.shape or kept.dtype != array.dtype:
            kept = self._arrays[name] = np.empty_like(array)
        return kept

    def pool(self, slots: int, shape: tuple[int, ...]) -> Array:
        """At least so many slots for histograms; those that were there keep what they hold."""
        kept = self._arrays.get("pool")
        if kept is None or kept.shape[1:] != shape:
            kept = np.empty((slots, *shape), np.int64)
        elif len(kept) < slots:
            more = np.empty((max(slots, 2 * len(kept)), *shape), np.int64)
            more[: len(kept)] = kept
            kept = more
        self._arrays["pool"] = kept
        return kept

    def exactly(self, name: str, slots: int, size: int) -> Array:
        """Return whole numbers of this shape, with anything in them."""
        kept = self._arrays.get(name)
        if kept is None or kept.shape != (slots, size):
            kept = self._arrays[name] = np.empty((slots, size), np.int64)
        return kept

    def at_least(self, name: str, slots: int, size: int) -> Array:
        """Return at least so many slots of a size, with anything in them."""
        kept = self._arrays.get(name)
        if kept is None or kept.shape[1] != size or len(kept) < slots:
            kept = self._arrays[name] = np.empty((slots, size), np.int64)
        return kept


class Spaces:
    """The memory of each thread: several trees may be grown side by side."""

    def __init__(self) -> None:
        self._own = threading.local()

    def of_this_thread(self) -> Space:
        if not hasattr(self._own, "space"):
            self._own.space = Space()
        space: Space = self._own.space
        return space
