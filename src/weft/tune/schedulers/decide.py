"""The decision of a study: from its state and the free slots to actions. The same state gives the same actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from weft.text import format_seconds, plural
from weft.tune.results.insights import is_plateau
from weft.tune.schedulers.actions import ResumeTrial, StartTrial, StopTrial, TrialAction, TrialScheduler
from weft.tune.schedulers.rules import StoppingRule, stops_of
from weft.tune.study.state import SearchState


@dataclass(frozen=True)
class StudyDecision:
    """Actions for trials, and the end of the study if it has come."""

    actions: tuple[TrialAction, ...] = ()
    ends: str | None = None  # completed, stopped, failed
    message: str = ""


def decide(
    state: SearchState,
    scheduler: TrialScheduler,
    free: int,
    rules: Sequence[StoppingRule] = (),
    *,
    exhausted: bool = False,
    finishing: bool = False,
    patient: bool = False,
    forgives: bool = False,
) -> StudyDecision:
    """Return what follows from the state of a study, with `free` idle slots.

    `exhausted` says that the searcher has no further point, as a grid has not after its last. `finishing`
    says that no trial is to begin or go on but those that run: when they have ended, the study stops. `patient` says
    the same of the moment when its time is over, for functions, which cannot be stopped. `forgives` says that trials
    may fail.
    """
    if state.state != "running":
        return StudyDecision()
    failed = "" if forgives else _failure(state, least=state.config.failures)
    if failed:
        running = tuple(StopTrial(t.number, "the study failed", cut=True) for t in state.in_state("running"))
        return StudyDecision(running, "failed", failed)
    over = _budget_used(state)
    if over is not None and patient and is_late(state) and state.count("running"):
        over, finishing = None, True
    stops = stops_of(state, rules)
    if over is not None:
        running_now = [StopTrial(trial.number, over, cut=True) for trial in state.in_state("running")]
        return StudyDecision(tuple(running_now), "completed", over)
    stopped = {action.trial for action in stops}
    starts = 0 if exhausted else _starts_left(state)
    found = scheduler.decide(state, max(0, free) + len(stops), starts)
    actions = (*stops, *(one for one in found if getattr(one, "trial", None) not in stopped))
    if finishing:
        actions = tuple(one for one in actions if not isinstance(one, (StartTrial, ResumeTrial)))
    if not actions and not state.count("running"):
        if finishing:
            return StudyDecision((), "stopped", "it was asked to end with the trials that ran")
        failed = "" if forgives else _failure(state, least=len(state.trials) or 1)
        if failed:  # all of them, though fewer than end a study
            return StudyDecision((), "failed", failed)
        return StudyDecision((), "completed", _ended_by(state, exhausted))
    return StudyDecision(actions)


def _starts_left(state: SearchState) -> int:
    limit = state.config.budget.trials
    return 10**9 if limit is None else max(0, limit - state.own)


def is_late(state: SearchState) -> bool:
    """Return whether the time of a study is over."""
    most_s = state.config.budget.time_s
    return most_s is not None and state.ran_s(state.now_s) >= most_s


def _budget_used(state: SearchState) -> str | None:
    """Return the sentence about the budget that is used up, all but the number of trials."""
    budget = state.config.budget
    if is_late(state):
        return f"its time of {format_seconds(budget.time_s or 0)} is over"
    if state.target_reached:
        return f"{state.goals[0]} has reached its target of {budget.target:g}"
    if budget.gpu_hours is not None and state.gpu_hours() >= budget.gpu_hours:
        return f"its {budget.gpu_hours:g} GPU-hours are used"
    patience, completed = budget.no_better_for, state.count("completed") > 0
    if patience is not None and completed and state.since_best() >= patience:
        return f"nothing better came in {plural(patience, 'trial')}"
    if state.config.act.get("plateau") and is_plateau(state):
        return "it has come to a plateau, and act.plateau ends it then"
    return None


def _failure(state: SearchState, *, least: int) -> str:
    """Return why a study cannot succeed: its trials fail, at least so many of them, and none does not."""
    over = state.over
    if len(over) >= least and all(state.trials[n].state == "failed" for n in over):
        last = state.trials[over[-1]].message
        return f"all of the first {plural(len(over), 'trial')} failed; the last of them: {last}"
    return ""


def _ended_by(state: SearchState, exhausted: bool) -> str:
    if exhausted:
        return f"every point was tried: {plural(len(state.trials), 'trial')}"
    paused = state.count("paused")
    rest = f"; {paused} of them stay paused" if paused else ""
    return f"all of its {plural(len(state.trials), 'trial')} were run{rest}"


def needs_decision(state: SearchState, trial: int, watches_all: bool) -> bool:
    """Return whether a report calls for a decision: at a limit, or where rules watch every report."""
    found = state.trials[trial]
    return (
        watches_all
        or found.reached
        or state.target_reached
        or (bool(found.curve) and not math.isfinite(found.curve[-1]))
    )


__all__ = ["ResumeTrial", "StartTrial", "StudyDecision", "decide", "needs_decision"]
