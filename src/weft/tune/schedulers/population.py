"""Population-based training: the worst trials go on with the weights of the best, and parameters near theirs.

Each trial is looked at whenever it has used `interval` more of the resource. If it is then among the worst `share` of
those that have come as far, or the worst one where that share is less than one trial, it takes weights and parameters
from one of the best: each parameter is drawn anew with probability `resample`, or else moved by a factor of 0.8 or 1.2,
or to a neighbour. Draws follow from seed, trial and step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.tune.schedulers.actions import (
    CloneTrial,
    ExtendTrial,
    ResumeTrial,
    StartTrial,
    TrialAction,
)
from weft.tune.space.domains import Choices, Domain, FloatRange, IntRange, LogRange, OrderedChoices
from weft.tune.space.space import SearchSpace
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState, TrialRecord

FACTORS = (0.8, 1.2)
MOST_DRAWS = 100  # of a point that meets the constraints


class PopulationTraining:
    """Population-based training with copied weights."""

    def __init__(
        self, population: int = 8, interval: int | None = None, share: float = 0.25, resample: float = 0.25
    ) -> None:
        if not (isinstance(population, int) and 2 <= population <= 10_000):
            raise StudyError(
                f"population must be a whole number from 2 to 10000, got {population!r}; write 8"
            )
        if interval is not None and not (isinstance(interval, int) and interval >= 1):
            raise StudyError(f"interval must be a whole number of at least 1, got {interval!r}; leave it out")
        if not (0 < share <= 0.5 and 0 <= resample <= 1):
            raise StudyError(
                f"share must be above 0 and at most 0.5, resample from 0 to 1, got {share} and {resample}; "
                "leave them out"
            )
        self.population, self.interval, self.share, self.resample = population, interval, share, resample

    def decide(self, state: SearchState, free: int, starts: int) -> Sequence[TrialAction]:
        resource = state.config.resource
        assert resource is not None
        interval = self.interval or max(resource.first, resource.max // 10, 1)
        actions: list[TrialAction] = []
        for trial in state.in_state("running"):
            if trial.reached:
                actions.append(self._next(state, trial, interval, resource.max))
        resting = state.resting()[:free]
        for trial in resting:
            until = (
                trial.until if trial.until is not None and trial.used < trial.until else trial.used + interval
            )
            actions.append(ResumeTrial(trial.number, min(resource.max, until)))
        missing = max(0, self.population - len(state.trials))
        actions += [StartTrial(min(interval, resource.max))] * min(free - len(resting), starts, missing)
        return actions

    def _next(self, state: SearchState, trial: TrialRecord, interval: int, most: int) -> TrialAction:
        limit = trial.until or 0
        until = min(most, limit + interval)
        rivals = [t for t in state if t.score_at(limit) is not None and t.state != "failed"]
        ranked = sorted(rivals, key=lambda t: (t.score_at(limit), t.number))
        count = max(1, int(len(ranked) * self.share))  # as published, one at least, or few trials hardly copy
        if len(ranked) >= 2 and trial in ranked[-count:]:
            draw = np.random.default_rng([state.config.seed, trial.number, limit])
            source = ranked[int(draw.integers(count))]
            if math.isfinite(source.score_at(limit) or math.inf) and source.number != trial.number:
                params = explore(state.space, source.params, draw, self.resample)
                return CloneTrial(trial.number, source.number, params, until)
        return ExtendTrial(trial.number, until)


def explore(
    space: SearchSpace, params: dict[str, Any], draw: np.random.Generator, resample: float
) -> dict[str, Any]:
    """Return parameters near some; the same ones if no draw meets the constraints."""
    for _ in range(MOST_DRAWS):
        found: dict[str, Any] = {}
        for name, domain in space.domains.items():
            if space.is_active(name, found):
                known = name in params and domain.contains(params[name])
                anew = not known or draw.random() < resample
                found[name] = draw_value(domain, draw) if anew else _near(domain, params[name], draw)
        if space.allows(found):
            return found
    return dict(params)


def draw_value(domain: Domain, draw: np.random.Generator) -> Any:
    """Return any value of a domain."""
    match domain:
        case FloatRange(low=low, high=high, step=None):
            return float(draw.uniform(low, high))
        case LogRange(low=low, high=high):
            return min(high, max(low, float(math.exp(draw.uniform(math.log(low), math.log(high))))))
        case IntRange(low=low, high=high, log=True):
            return min(high, max(low, round(math.exp(draw.uniform(math.log(low), math.log(high))))))
        case IntRange(low=low, high=high, step=step):
            return low + step * int(draw.integers((high - low) // step + 1))
    values = domain.grid(2)
    return values[int(draw.integers(len(values)))]


def _near(domain: Domain, value: Any, draw: np.random.Generator) -> Any:
    factor = FACTORS[int(draw.integers(2))]
    match domain:
        case FloatRange(low=low, high=high, step=None) | LogRange(low=low, high=high):
            return min(high, max(low, value * factor))
        case IntRange(low=low, high=high, step=step):
            moved = low + round((value * factor - low) / step) * step
            if moved == value:
                moved += step if factor > 1 else -step
            return min(low + (high - low) // step * step, max(low, moved))
        case OrderedChoices() | FloatRange():
            values = domain.grid(2)
            index = min(range(len(values)), key=lambda i: 0 if values[i] == value else 1)
            return values[min(len(values) - 1, max(0, index + (1 if factor > 1 else -1)))]
        case Choices():
            return value
    return value
