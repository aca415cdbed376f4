"""The use that a script makes of its loop: steps without a backward pass, or without a step of an optimizer, are told.

Plain PyTorch runs such a loop in silence. Here two of them are often meant as something else: gradients that are
accumulated by hand over several steps would be lost, and a loop that never steps trains nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from weft.text import plural

STEPS_TO_JUDGE = 8  # committed steps with gradients after which the use of optimizers is judged


class LoopUsage:
    """Counts of one worker; all members come to the same ones, but for newcomers, who judge later."""

    def __init__(
        self, *, say: Callable[[str], None], refuse: Callable[[str], NoReturn], optimizers: int
    ) -> None:
        self._say, self._refuse, self._optimizers = say, refuse, optimizers
        self.step_used = False  # some member had a backward pass in the step under way
        self._unused = 0  # steps in which no member had a backward pass
        self._applied = self._lost = 0  # steps with a backward pass, by whether an optimizer stepped
        self._judged = False

    def commit(self, *, applied: bool) -> None:
        """Count a step that commits."""
        used, self.step_used = self.step_used, False
        self._unused += not used
        if used and self._optimizers:
            self._applied, self._lost = self._applied + applied, self._lost + (not applied)
        if self._applied + self._lost >= STEPS_TO_JUDGE:
            self._judge()

    def end_epoch(self, committed: int) -> None:
        """Judge an epoch that is over; `committed`: steps of the run."""
        if 0 < self._unused == committed:
            self._refuse(
                f"batches must be followed by loss.backward(), got none in {committed} steps on any "
                "worker; was every batch left out?"
            )
        if self._applied + self._lost > 1:
            self._judge()

    def _judge(self) -> None:
        if self._judged:
            return
        self._judged = True
        if (advice := advise(self._applied, self._lost)) is None:
            return
        if self._applied:
            self._say(advice)
        else:
            self._refuse(advice)


def advise(applied: int, lost: int) -> str | None:
    """Say what is wrong if an optimizer stepped in so few of the steps that had gradients. Pure."""
    if not applied:
        return (
            f"optimizer.step() must be called after loss.backward(), got {plural(lost, 'step')} without it; "
            "nothing is trained"
        )
    if lost < applied:
        return None
    times = round((applied + lost) / applied)
    return (
        f"optimizer.step() was called in {applied} of {applied + lost} steps, and the gradients of the others are "
        f"lost; to accumulate them, give run.loader a batch {times} times as large, with micro= as it is now, and call "
        "optimizer.step() in every turn of the loop"
    )
