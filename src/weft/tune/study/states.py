"""States of trials and directions of metrics: text, which equals Optuna's words for the same as well."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any

from weft.tune.study.config import StudyError


class _OptunasWord(StrEnum):
    """Text that also equals the member of Optuna's enumeration that has its name."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Enum) and not isinstance(other, str):
            return other.name == self.name
        return str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class TrialState(_OptunasWord):
    """The state of a trial; Optuna has no pauses."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "completed"
    PRUNED = "stopped"
    FAIL = "failed"

    def is_finished(self) -> bool:
        """Return whether the trial is over."""
        return self in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class MetricDirection(_OptunasWord):
    """The direction in which a metric is good."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


def end_named(given: Any) -> TrialState:
    """Return the state of a trial that has ended, by our word for it or by Optuna's."""
    for state in TrialState:
        if state.is_finished() and state == given:
            return state
    raise StudyError(
        f"a trial must end as completed, stopped or failed, got {given!r}; write study.tell(trial, state='failed')"
    )


def direction_named(given: Any) -> MetricDirection:
    """Return a direction by our word for it or by Optuna's."""
    for direction in MetricDirection:
        if direction == given:
            return direction
    raise StudyError(f"a direction must be minimize or maximize, got {given!r}; write direction='minimize'")
