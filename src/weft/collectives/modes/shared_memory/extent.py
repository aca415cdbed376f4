"""Through how much of a slab pieces move on: a little, which stays in the caches, or much. Pure, but for the clock.

Where cores share a cache, little is twice as fast. Where they do not (on two sockets, say), it is slow to write what
another core has just read, and with much memory nobody has read it for a while: that is up to five times as fast. So
both are tried now and then, and the better one is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_BYTES = 1 << 17  # smaller pieces are not watched
SETTLING = 64  # pieces after a change, or a start, that tell nothing: the caches are still of before
TIMED_PIECES = 16
BEFORE = SETTLING + TIMED_PIECES  # pieces of one size that either way is given
SIZES = 8  # watched at a time
STRANGERS = 200  # pieces of other sizes in a row that end a trial
SOON_S, AGAIN_S = 0.3, 1.5  # after a change, and after none
FIRST = 2 * BEFORE  # pieces of one size until the first trial has ended
BETTER = 0.85  # the other way must take at most this share of the time


class SlabExtent:
    """Decides for all; one rank has it, and tells the others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.wide = False
        self._clock = clock
        self._costs: dict[int, list[float]] = {}  # of pieces by their size
        self._trial: tuple[int, float] | None = None  # its size of pieces, and what the way we know costs
        self._until = 0.0  # the next trial, or the end of this one
        self._others = 0  # pieces since the last one of the trial's size

    @property
    def resting(self) -> bool:
        """Nothing is to be noted for now."""
        return self._trial is None and self._clock() < self._until

    def note(self, nbytes: int, seconds: float) -> None:
        """A piece was carried out in so much time, without what was spent in waiting."""
        if nbytes < LEAST_BYTES:
            return
        due = self._clock() >= self._until
        if self._trial is None:
            if due:
                self._watch(nbytes, seconds)
        elif nbytes != self._trial[0]:
            self._others += 1
            if due or self._others > STRANGERS:
                self._end_trial(better=False)  # pieces of its size do not come any more
        else:
            self._others = 0
            costs = self._costs.setdefault(nbytes, [])
            costs.append(seconds)
            if len(costs) >= BEFORE:
                self._end_trial(better=_typical(costs) <= BETTER * self._trial[1])

    def _watch(self, nbytes: int, seconds: float) -> None:
        if nbytes not in self._costs and len(self._costs) >= SIZES:
            self._costs.clear()
        costs = self._costs.setdefault(nbytes, [])
        costs.append(seconds)
        if len(costs) >= BEFORE:
            self._trial = (nbytes, _typical(costs))
            self._costs.clear()
            self._until = self._clock() + AGAIN_S
            self._others = 0
            self.wide = not self.wide

    def _end_trial(self, *, better: bool) -> None:
        if not better:
            self.wide = not self.wide
        self._trial = None
        self._costs.clear()
        self._until = self._clock() + (SOON_S if better else AGAIN_S)


def _typical(costs: list[float]) -> float:
    return sorted(costs[-TIMED_PIECES:])[TIMED_PIECES // 2]
