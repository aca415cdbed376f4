"""The history of a solver: objective, gap to the optimum and time after each pass over the data."""

from __future__ import annotations

import time
from typing import NamedTuple


class Progress(NamedTuple):
    """The objective, the gap and the time after one pass over the data."""

    objective: float
    gap: float  # a bound or estimate of how far the objective is above the optimum, relative to it
    seconds: float  # since the fit began
    output: int = 0  # the number of the problem: of a class or a target, where each is solved alone


class History:
    """The progress of one problem, collected pass by pass."""

    def __init__(self, output: int = 0):
        self.output = output
        self.steps: list[Progress] = []
        self._began = time.perf_counter()

    def add(self, objective: float, gap: float) -> float:
        """Record the objective and its absolute gap; return the relative gap."""
        relative = relative_gap(objective, gap)
        self.steps.append(Progress(objective, relative, time.perf_counter() - self._began, self.output))
        return relative

    @property
    def gap(self) -> float:
        """The last relative gap."""
        return self.steps[-1].gap if self.steps else float("inf")


def relative_gap(objective: float, gap: float) -> float:
    """Return the gap as a share of the objective."""
    if gap <= 0.0:
        return 0.0
    return gap / abs(objective) if objective else float("inf")
