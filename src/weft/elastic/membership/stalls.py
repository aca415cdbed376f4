"""Stalls, pure: for how long a worker may make no progress before it is taken for stuck.

Progress is what a worker's loop does. Between two signs of it a worker may compile a model, validate, or wait for a
disk, so how patient its agent is depends on what the worker's processes do and on where the other members are:

| the worker                 | all others wait for it | others are slow too, or there are none |
|----------------------------|------------------------|----------------------------------------|
| does nothing               | `detect_within`        | `all_idle_s`                           |
| computes                   | `busy_s`               | `all_busy_s`                           |

Three of its usual steps are always allowed, and five minutes where something is done for the first time. Each worker
that was taken for stuck doubles the limits for those that follow: a second alarm at the same place would be in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.elastic.timing import Timing

FIRST_TIME_S = 300.0  # for work that may take long the first time: compiling kernels, opening files
MOST_DOUBLINGS = 5  # of the limits, by alarms in a row
COMMITS_TO_FORGET = 1000  # commits of a host after which one alarm is forgotten


@dataclass(frozen=True)
class Stall:
    """A worker that makes no progress, at one moment."""

    idle_s: float  # since its last progress
    step_s: float = 0.0  # how long its steps usually take; 0: not known yet
    first_time: bool = False  # the work may take long because it is done for the first time
    computes: bool = False  # its processes use the processor, or wait for a disk
    others_wait_s: float = (
        0.0  # for how long all other members have waited; 0: there are none, or one does not wait
    )
    alarms: int = 0  # workers of its host that were taken for stuck lately


def is_stuck(stall: Stall, timing: Timing) -> bool:
    """Return whether a worker has made no progress for too long."""
    if stall.idle_s <= max(timing.stuck_s(stall.step_s), FIRST_TIME_S if stall.first_time else 0.0):
        return False
    alone_s, at_all_s = _limits(stall, timing)
    return min(stall.idle_s, stall.others_wait_s) > alone_s or stall.idle_s > at_all_s


def _limits(stall: Stall, timing: Timing) -> tuple[float, float]:
    """Return the seconds without progress while all others wait, and those while others may be slow too."""
    factor = 1 << min(stall.alarms, MOST_DOUBLINGS)
    if stall.computes:
        return factor * timing.busy_s, factor * timing.all_busy_s
    return factor * timing.detect_within, factor * timing.all_idle_s


@dataclass(frozen=True)
class Alarms:
    """The alarms of one host, and its commits since the last of them."""

    count: int = 0
    commits: int = 0

    def raised(self) -> Alarms:
        """Count one more alarm."""
        return Alarms(self.count + 1)

    def committed(self) -> Alarms:
        """Count a commit; enough of them make up for an alarm."""
        if self.count and self.commits + 1 >= COMMITS_TO_FORGET:
            return Alarms(self.count - 1)
        return Alarms(self.count, self.commits + 1) if self.count else self
