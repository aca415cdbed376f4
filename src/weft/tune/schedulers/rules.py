"""Rules that stop trials early, beside any scheduler: worse than the median of others, or beyond a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Protocol

from weft.tune.schedulers.actions import StopTrial, TrialAction
from weft.tune.schedulers.plain import RunAll
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState, TrialRecord


class StoppingRule(Protocol):
    """Says why a running trial should end now; None: it should not."""

    def reason(self, state: SearchState, trial: TrialRecord) -> str | None: ...


class MedianRule:
    """Stops a trial whose best score so far is worse than the median of the others' best up to the same step."""

    def __init__(self, after: int = 1, trials: int = 5) -> None:
        if not (isinstance(after, int) and after >= 0 and isinstance(trials, int) and trials >= 1):
            raise StudyError(
                f"median must have whole numbers after >= 0 and trials >= 1, got {after!r} and {trials!r}; "
                "leave them out"
            )
        self.after, self.trials = after, trials

    def reason(self, state: SearchState, trial: TrialRecord) -> str | None:
        step = trial.step
        if step < self.after or not trial.curve:
            return None
        others = [o.best_until(step) for o in state if o.number != trial.number and o.step >= step]
        if len(others) < self.trials or trial.best_until(step) <= median(others):
            return None
        return f"worse at {step} than the median of {len(others)} others"


class ThresholdRule:
    """Stops a trial whose metric leaves the bounds, or is no number, after a step."""

    def __init__(
        self,
        above: float | None = None,
        below: float | None = None,
        after: int = 0,
        metric: str | None = None,
    ) -> None:
        if above is None and below is None:
            raise StudyError(
                "threshold must have above or below, got neither; write {name: threshold, above: 10}"
            )
        self.above, self.below, self.after, self.metric = above, below, after, metric

    def reason(self, state: SearchState, trial: TrialRecord) -> str | None:
        name = self.metric or state.goals[0]
        value = trial.latest.get(name)
        if value is None or trial.step < self.after:
            return None
        if value != value:
            return f"{name} is NaN at {trial.step}"
        if self.above is not None and value > self.above:
            return f"{name} is {value:g} at {trial.step}, above {self.above:g}"
        if self.below is not None and value < self.below:
            return f"{name} is {value:g} at {trial.step}, below {self.below:g}"
        return None


class NanRule:
    """Stops a trial whose first metric is NaN or infinite: it does not come back."""

    def reason(self, state: SearchState, trial: TrialRecord) -> str | None:
        if trial.curve and not math.isfinite(trial.curve[-1]):
            return f"{state.goals[0]} is {trial.curve[-1]} at {trial.step}: it diverged"
        return None


class MedianStopping(RunAll):
    """The scheduler of the name median: all trials run, and those worse than the median are stopped."""

    def __init__(self, after: int = 1, trials: int = 5) -> None:
        self._rule = MedianRule(after, trials)

    def decide(self, state: SearchState, free: int, starts: int) -> Sequence[TrialAction]:
        stops = stops_of(state, (self._rule,))
        return [*stops, *super().decide(state, free + len(stops), starts)]


def stops_of(state: SearchState, rules: Sequence[StoppingRule]) -> list[StopTrial]:
    """Return the running trials that a rule stops, each with its reason."""
    found = []
    for trial in state.in_state("running"):
        reason = next((text for rule in rules if (text := rule.reason(state, trial)) is not None), None)
        if reason is not None:
            found.append(StopTrial(trial.number, reason))
    return found
