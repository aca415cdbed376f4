"""Times of steps that a job reports by itself: from one step of its optimizer to the next, under the name `step_s`.

They are logged at most twenty times a second, as the mean of the steps since. A script that logs `step_s` knows better,
and ends this for its process. Where a step has several optimizers, the first one counts.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from weft.reporting.names import STEP_METRIC

LEAST_S = 0.05  # from one report to the next


class StepClock:
    """Turns the steps of one optimizer into reports."""

    def __init__(self, note: Any, now: Any = time.perf_counter) -> None:
        self._note, self._now = note, now
        self._optimizer: weakref.ref[object] | None = None
        self._steps, self._since_report = 0, 0
        self._reported_s = 0.0

    def stepped(self, optimizer: object, *_: Any) -> None:
        """Note the end of a step; torch calls it for every optimizer."""
        known = self._optimizer() if self._optimizer is not None else None
        now_s = self._now()
        if known is None:  # the first, or its successor once that one is gone
            self._optimizer, self._reported_s, self._since_report = weakref.ref(optimizer), now_s, 0
            return
        if known is not optimizer:
            return
        self._steps += 1
        self._since_report += 1
        passed_s = now_s - self._reported_s
        if passed_s >= LEAST_S:
            self._note({STEP_METRIC: passed_s / self._since_report}, self._steps)
            self._reported_s, self._since_report = now_s, 0


_clock: StepClock | None = None


def watch_steps() -> None:
    """Report the steps of this process from now on; a second call changes nothing."""
    global _clock
    if _clock is not None:
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from weft.reporting.calls import note_step

    _clock = StepClock(note_step)
    register_optimizer_step_post_hook(_clock.stepped)
