"""A study and its trials as data, for `--json`, the web interface and exports."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from weft.tune.space.domains import scalar_params
from weft.tune.study.state import SearchState, TrialRecord

Scalar = float | int | str | bool | None
MOST_POINTS = 200  # of one curve in a view; the last one is shown besides


class TrialView(msgspec.Struct, frozen=True, kw_only=True):
    """One trial."""

    number: int
    state: str  # waiting, running, paused, completed, stopped, failed
    params: dict[str, Scalar]
    values: dict[
        str, float | str | None
    ]  # of the study's metrics: final ones, or the last that were reported
    step: int
    until: int | None = None
    bracket: int = 0
    starts: int = 0
    given: bool = False
    held: bool = False  # somebody paused it: it rests until it is promoted
    source: str = ""  # an earlier study that it was taken from
    parent: int | None = None  # the trial whose weights it took
    message: str = ""
    begun_ms: int | None = None
    ended_ms: int | None = None
    run_s: float = 0.0
    job_id: int | None = None
    curve: tuple[tuple[int, float | str], ...] = ()  # steps and the first metric
    curve_from: int = 0  # points of the curve that come before these, and that the asker has


class StudyView(msgspec.Struct, frozen=True, kw_only=True):
    """One study at a glance."""

    name: str
    state: str  # running, paused, stopped, completed, failed
    message: str
    metrics: dict[str, str]  # minimize or maximize
    search: str
    schedule: str
    trials: int
    counts: dict[str, int]  # of trials by state
    best: TrialView | None = None
    begun_ms: int | None = None
    ended_ms: int | None = None
    budget_trials: int | None = None  # those of earlier studies included, as they are in `trials`
    gpu_hours: float = 0.0
    id: int | None = None  # in a service
    user: str = ""
    project: str = ""


def json_number(value: float) -> float | str:
    """Return a number as JSON can hold it."""
    return (
        value
        if math.isfinite(value)
        else "NaN"
        if value != value
        else "Infinity"
        if value > 0
        else "-Infinity"
    )


def trial_view(
    state: SearchState, trial: TrialRecord, *, curve: bool = False, known: int = 0, job_id: int | None = None
) -> TrialView:
    """Return one trial as data; of its curve only what is new to somebody who knows its first `known` reports."""
    values: dict[str, float | str | None] = {}
    for index, name in enumerate(state.goals):
        value = trial.values[index] if trial.values is not None else trial.latest.get(name)
        values[name] = None if value is None else json_number(value)
    start, points = thin_curve(trial, known) if curve else (0, ())
    return TrialView(
        number=trial.number,
        state=trial.state,
        params=scalar_params(trial.params),
        values=values,
        step=trial.used,
        until=trial.until,
        bracket=trial.bracket,
        starts=trial.starts,
        given=trial.given,
        held=trial.held,
        source=trial.source,
        parent=trial.parent,
        message=trial.message,
        begun_ms=_ms(trial.begun_s),
        ended_ms=_ms(trial.ended_s),
        run_s=round(state.run_s(trial), 3),
        job_id=job_id,
        curve=points,
        curve_from=start,
    )


def study_view(state: SearchState, **more: Any) -> StudyView:
    """Return a study as data."""
    config, best = state.config, state.best()
    counts: dict[str, int] = {}
    for trial in state:
        counts[trial.state] = counts.get(trial.state, 0) + 1
    return StudyView(
        name=config.name,
        state=state.state,
        message=state.message,
        metrics={name: "minimize" if small else "maximize" for name, small in config.goals.items()},
        search=_name(config.search),
        schedule=_name(config.schedule),
        trials=len(state.trials),
        counts=counts,
        best=None if best is None else trial_view(state, best),
        begun_ms=_ms(state.begun_s),
        ended_ms=_ms(state.ended_s),
        budget_trials=None
        if config.budget.trials is None
        else config.budget.trials + len(state.trials) - state.own,
        gpu_hours=round(state.gpu_hours(), 6),
        **more,
    )


def _name(given: str | dict[str, Any]) -> str:
    return given if isinstance(given, str) else str(given.get("name"))


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def thin_curve(trial: TrialRecord, known: int = 0) -> tuple[int, tuple[tuple[int, float | str], ...]]:
    """Return which point of the thinned curve is the first that is new, and the points from there on.

    Every 1st, 2nd, 4th, ... report is kept, and the last one. So points stay while a curve grows, until there are twice
    as many: whoever has those of the first `known` reports needs the later ones alone.
    """
    count = len(trial.steps)
    every = _distance(count)
    first = -(-known // every) if _distance(known) == every else 0
    steps, values = trial.steps[first * every :: every], trial.curve[first * every :: every]
    if count and (count - 1) % every:
        steps, values = [*steps, trial.steps[-1]], [*values, trial.curve[-1]]
    pairs = zip(steps, values, strict=True)
    return first, tuple(
        [(step, value if math.isfinite(value) else json_number(value)) for step, value in pairs]
    )


def _distance(count: int) -> int:
    """Return how many reports lie between two points that are kept of so many, a power of two."""
    return 1 << max(0, -(-count // MOST_POINTS) - 1).bit_length()
