"""The activity of a worker: whether its processes compute, as the kernel counts it.

A loop without progress may be one that compiles, validates or reads; then its processes use the processor. That holds
for work on an accelerator too: waiting for one keeps a core busy, unless a program asks CUDA for blocking waits.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.launch.agent import processes
from weft.launch.agent.processes import SessionUse

BUSY_SHARE = 0.05  # of one core, used between two looks
KEPT = 0.8  # share of the old estimate that stays with each look: a dozen looks make it forget
ACTIVE = 0.25  # estimate above which a worker computes


class WorkerActivity:
    """An estimate, from 0 to 1, of how much of the time a worker's processes have been busy lately."""

    def __init__(self, session: int, *, read: Callable[[int], SessionUse] = processes.session_use) -> None:
        self._session, self._read = session, read
        self._estimate = 1.0
        self._last: tuple[float, float] | None = (
            None  # the time of the last look, and the seconds used by then
        )

    def rest(self) -> None:
        """Note that the worker makes progress: there is no need to look."""
        self._estimate, self._last = 1.0, None

    def look(self, now: float) -> bool:
        """Look at what the worker's processes do; return whether they compute."""
        use = self._read(self._session)
        before, self._last = self._last, (now, use.seconds)
        if before is not None and now > before[0]:
            share = (use.seconds - before[1]) / (now - before[0])
            # A process that is ready to run computes, even if a busy machine gives it no time.
            busy = use.ready or share >= BUSY_SHARE
            self._estimate = KEPT * self._estimate + (1 - KEPT) * busy
        return self._estimate >= ACTIVE
