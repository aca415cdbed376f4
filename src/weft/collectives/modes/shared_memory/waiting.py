"""The wait of a rank for a peer: it spins where it has a core to itself, and sleeps soon where cores are scarce.

A yield tells which it is. Where nobody else wants the core it returns in less than a microsecond; where others do, they
run first. A rank that spins on such a core takes the time of the very peer it waits for, and comes last once the peer
has arrived: a scheduler prefers threads that have slept.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

MANY_LOOKS, FEW_LOOKS = 2000, 20  # at a counter before a rank sleeps: with a core for every rank, and without
LOOKS_A_YIELD = 16  # between two yields
LOOKS_WHEN_SCARCE = 200  # about ten microseconds: a peer that runs beside this rank has come by then
SLOW_YIELD_S = 100e-6  # a yield that took longer has let another program run
SHORTEST_REST_S, LONGEST_REST_S = 0.02, 3.0  # without yields, after a slow one and after many


class Spinner:
    """Looks at counters of peers for as long as that is better than to sleep."""

    def __init__(
        self,
        *,
        core_for_each: bool,
        clock: Callable[[], float] = time.perf_counter,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._rounds = max(1, (MANY_LOOKS if core_for_each else FEW_LOOKS) // LOOKS_A_YIELD)
        # Where ranks share cores, a yield lets the awaited peer run: the one of each wait is worth its time.
        self._slow_s = SLOW_YIELD_S if core_for_each else math.inf
        self._clock, self._give_way = clock, give_way
        self._rest_s = SHORTEST_REST_S
        self._rests_until = 0.0

    def saw(self, counters: memoryview, place: int, count: int) -> bool:
        """Return whether a counter came as far as `count` while it was looked at; if not, sleep until it does."""
        if self._clock() < self._rests_until:
            return _spin_until(counters, place, count, LOOKS_WHEN_SCARCE)
        for _ in range(self._rounds):
            if _spin_until(counters, place, count, LOOKS_A_YIELD):
                return True
            before = self._clock()
            self._give_way()
            self._note_yield(before, self._clock())
            if self._rests_until > before:
                break
        return counters[place] >= count

    def _note_yield(self, began: float, ended: float) -> None:
        """Rest after a slow yield, for longer each time; quick ones make the next rest shorter."""
        if ended - began > self._slow_s:
            self._rests_until = ended + self._rest_s
            self._rest_s = min(LONGEST_REST_S, 2 * self._rest_s)
        elif self._rest_s > SHORTEST_REST_S:
            self._rest_s = max(SHORTEST_REST_S, self._rest_s / 2)


def _spin_until(counters: memoryview, place: int, count: int, looks: int) -> bool:
    for _ in range(looks):  # noqa: SIM110 (as a generator it would take twice as long)
        if counters[place] >= count:
            return True
    return False
