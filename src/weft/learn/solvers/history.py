"""What a solver tells about its way: the objective, how far it may still be from the best, and when."""

from __future__ import annotations

import time
from typing import NamedTuple


class Progress(NamedTuple):
    """The state after one pass over the data."""

    objective: float
    gap: float  # a bound or estimate of how far the objective is above the optimum, relative to it
    seconds: float  # since the fit began
    output: int = 0  # which of several independent problems: a class, a target


class History:
    """Collects progress; one for each problem that is solved."""

    def __init__(self, output: int = 0):
        self.output = output
        self.steps: list[Progress] = []
        self._began = time.perf_counter()

    def add(self, objective: float, gap: float) -> float:
        """Note the objective and the absolute gap; returns the relative one."""
        relative = relative_gap(objective, gap)
        self.steps.append(Progress(objective, relative, time.perf_counter() - self._began, self.output))
        return relative

    @property
    def gap(self) -> float:
        return self.steps[-1].gap if self.steps else float("inf")


def relative_gap(objective: float, gap: float) -> float:
    """The gap as a share of the objective; an objective of zero cannot be bettered."""
    if gap <= 0.0:
        return 0.0
    return gap / abs(objective) if objective else float("inf")
