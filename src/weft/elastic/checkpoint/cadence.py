"""The cadence of checkpoints: every N steps, or as often as costs little."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median

FIRST_STEPS, MOST_STEPS = 10, 1000
COST = 0.01  # of the time of training


class Cadence:
    """The steps at which a checkpoint is due.

    Without a number of steps, one is due when the cost of the last is at most 1 % of the time since: what training
    waited for it, and the processor time of the thread that wrote it, which training may have had to do without. The
    first is due after 10 steps, and any after at most 1000.
    """

    def __init__(self, every: int | None = None) -> None:
        self.every = every
        self.last = 0  # step that was saved, or where the run began
        self.cost_s: float | None = None  # of that one
        self._commits: deque[float] = deque(maxlen=20)  # when the last steps were committed

    def due(self, step: int) -> bool:
        if self.every is not None:
            return step % self.every == 0
        return step - self.last >= self.interval_steps()

    def note_commit(self, now: float) -> None:
        self._commits.append(now)

    def interval_steps(self) -> int:
        """Steps from one to the next, by what one costs."""
        if self.cost_s is None or len(self._commits) < 2:
            return FIRST_STEPS
        step_s = median(later - earlier for earlier, later in pairwise(self._commits))
        return min(MOST_STEPS, math.ceil(self.cost_s / (COST * max(step_s, 1e-6))))
