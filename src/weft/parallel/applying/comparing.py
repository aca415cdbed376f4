"""The comparison of measured and predicted steps: after some steps a run says where they part."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from weft.parallel.planning.plan_file import ParallelPlan
from weft.text import format_seconds

SKIPPED_STEPS = 3  # the first ones warm up
COMPARED_STEPS = 10
NEAR = 0.2  # a prediction holds if the measured step differs by at most this share
FILE = "parallel-measured.json"


def comparison(plan: ParallelPlan, measured_s: float) -> str:
    """Return the sentence that a run says of its steps."""
    predicted_s = plan.predicted.step_s
    difference = measured_s / predicted_s - 1
    said = (
        f"a step takes {format_seconds(measured_s)}, predicted {format_seconds(predicted_s)} ({difference:+.0%}) "
        f"by {plan.way}"
    )
    if abs(difference) <= NEAR:
        return said
    waited_s = measured_s - plan.predicted.compute_s
    if difference > 0 and plan.predicted.network_s > 0.1 * predicted_s and waited_s > 0:
        return (
            f"{said}; it waits {format_seconds(waited_s)} where {format_seconds(plan.predicted.waiting_s)} were "
            "predicted: measure the links again by weft check, and plan anew"
        )
    return f"{said}; computing takes another time than was recorded: plan anew"


class StepTimer:
    """Times the steps of this process, and says once how they compare."""

    def __init__(self, plan: ParallelPlan, rank: int | None = None) -> None:
        self._plan, self._rank = plan, rank
        self._last_s: float | None = None
        self._times: list[float] = []
        self._done = False

    def stepped(self, *_: Any) -> None:
        """Note the end of a step; an optimizer's hook calls it."""
        if self._done:
            return
        now = time.perf_counter()
        if self._last_s is not None:
            self._times.append(now - self._last_s)
        self._last_s = now
        if len(self._times) == SKIPPED_STEPS + COMPARED_STEPS:
            self._done = True
            # Workers of an elastic run get their ranks when they meet.
            if (int(os.environ.get("RANK", "0")) if self._rank is None else self._rank) == 0:
                self._tell(median(self._times[SKIPPED_STEPS:]))

    def _tell(self, measured_s: float) -> None:
        print(f"weft: {comparison(self._plan, measured_s)}", file=sys.stderr, flush=True)
        folder = Path(os.environ.get("WEFT_RUN_DIR", ""))
        if os.environ.get("WEFT_RUN_DIR") and folder.is_dir():
            data = {
                "way": str(self._plan.way),
                "predicted_s": self._plan.predicted.step_s,
                "measured_s": measured_s,
            }
            (folder / FILE).write_text(json.dumps(data, indent=2) + "\n")
