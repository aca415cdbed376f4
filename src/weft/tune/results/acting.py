"""Insights that act where the study allows it: what each does, decided from the state alone.

`act: {edge: true}` widens a range whose edge is best, `divergence` keeps new points below what diverged, `no-matter`
fixes a parameter that does not matter at its best value, `overfitting` stops trials that get worse for long, `plateau`
ends the study. What is done is an event of the study, so a study that is started again goes on with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.tune.results.insights import THRESHOLDS, insights
from weft.tune.space.domains import Domain, FloatRange, IntRange, LogRange
from weft.tune.space.space import Params, SearchSpace
from weft.tune.study.events import StudyActed
from weft.tune.study.state import SearchState, TrialRecord

EVERY = 10  # completed or diverged trials: how often rules are asked whether to act
WIDEN = 0.25  # of a range, by its logarithm where it has one
MOST_WIDENINGS = 4  # of one parameter


def due(state: SearchState) -> bool:
    """Return whether rules are to be asked now: some may act, and enough trials have ended since they were."""
    wanted = any(state.config.act.get(rule) for rule in ("edge", "divergence", "no-matter"))
    return wanted and len(state.over) // EVERY > state.acted_at // EVERY


def act_on(state: SearchState, at_s: float) -> StudyActed:
    """Return what the rules that may act do now; it may be nothing, and counts as having been asked."""
    space: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    below: dict[str, float] = {}
    texts: list[str] = []
    for one in insights(state):
        name = one.evidence.get("parameter")
        if not state.config.act.get(one.rule) or not isinstance(name, str) or name not in state.space.domains:
            continue
        if one.rule == "edge" and name not in space and state.widened.get(name, 0) < MOST_WIDENINGS:
            wider = widened(state.space.domains[name], str(one.evidence["side"]))
            if wider is not None:
                space[name] = wider.data()
                texts.append(f"{name} is {wider.text()} now")
        elif one.rule == "divergence" and name not in state.below:
            below[name] = float(one.evidence["from"])
            texts.append(f"{name} stays below {below[name]:.3g}")
        elif one.rule == "no-matter" and name not in state.fixed:
            best = state.best()
            if best is not None and name in best.params:
                fixed[name] = best.params[name]
                texts.append(f"{name} stays {best.params[name]}")
    return StudyActed(space=space, fixed=fixed, below=below, message="; ".join(texts), at_s=at_s)


def widened(domain: Domain, side: str) -> Domain | None:
    """Return a range that goes on at one side; None where it cannot. What was positive stays so."""
    match domain:
        case LogRange(low=low, high=high) | IntRange(low=low, high=high, log=True) if low > 0:
            factor = (high / low) ** WIDEN
            new = (low, high * factor) if side == "upward" else (low / factor, high)
        case FloatRange(low=low, high=high, step=None) | IntRange(low=low, high=high):
            span = (high - low) * WIDEN
            new = (
                (low, high + span)
                if side == "upward"
                else (low - span if low < 0 else max(0.0, low - span), high)
            )
        case _:
            return None
    if isinstance(domain, IntRange):
        down = math.floor((domain.low - new[0]) / domain.step) * domain.step  # steps stay where they are
        up = math.ceil((new[1] - domain.high) / domain.step) * domain.step
        new = (max(domain.low - down, 1) if domain.log else domain.low - down, domain.high + up)
    ends: dict[str, Any] = {"low": new[0], "high": new[1]}
    found = replace(domain, **ends)
    return None if found == domain else found


def steered(state: SearchState, point: Params) -> Params:
    """Return a suggested point with what was fixed and below what diverged; as it is where the space forbids that."""
    if not state.fixed and not state.below:
        return point
    made = {name: state.fixed.get(name, value) for name, value in point.items()}
    for name, bound in state.below.items():
        value: Any = made.get(name)
        if name in made and value >= bound:
            made[name] = _under(state.space.domains[name], bound, state.next_number)
    return made if _is_inside(state.space, made) else point


def _under(domain: Domain, bound: float, number: int) -> Any:
    """Return a value below a bound: the share of the way from the low end follows from the trial's number."""
    share = (number * 0.6180339887498949) % 1.0
    low = domain.low  # type: ignore[attr-defined]
    value = low * (bound / low) ** share if isinstance(domain, LogRange) else low + (bound - low) * share
    return int(value) if isinstance(domain, IntRange) else float(value)


def _is_inside(space: SearchSpace, point: Mapping[str, Any]) -> bool:
    return space.allows(point) and all(space.domains[name].contains(value) for name, value in point.items())


class OverfittingRule:
    """Stops a trial that was best long ago and has got worse since, where the study lets overfitting act."""

    def reason(self, state: SearchState, trial: TrialRecord) -> str | None:
        """Return why a trial should end; None: it should not."""
        resource = state.config.resource
        if not state.config.act.get("overfitting") or len(trial.curve) < 5 or resource is None:
            return None
        scores = [trial.score(value) for value in trial.curve]
        at = scores.index(min(scores))
        span = max(scores) - scores[at]
        late = trial.step - trial.steps[at] >= resource.max - THRESHOLDS["overfit_by"] * resource.max
        if (
            not late
            or not math.isfinite(span)
            or scores[-1] - scores[at] <= THRESHOLDS["overfit_loss"] * span
        ):
            return None
        return f"best at {trial.steps[at]}, worse since: it overfits, and act.overfitting ends it then"
