"""Importances of parameters, with confidence: what a forest that predicts the metric loses without each of them.

The forest is fitted to resamples of the trials and judged on the trials that a resample left out, before and after one
parameter's values are exchanged between those. A parameter that does not matter loses nothing there, however often the
forest looked at it. The metric is taken by rank, so that a few diverged trials do not outweigh all others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from weft.tune.space.domains import Domain, FloatRange, IntRange, LogRange, OrderedChoices
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 20
LEAST_TRIALS = 8
TREES = 20
EXCHANGES = 4  # of a parameter's values, in one resample


class ParameterImportance(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one parameter in the difference between trials, and the middle 90 % of its resamples."""

    name: str
    share: float
    low: float
    high: float


def importances(state: SearchState, *, resamples: int = RESAMPLES) -> list[ParameterImportance]:
    """Return the importance of each parameter, the largest first."""
    import numpy as np

    names, table, ranks = trial_table(
        state, LEAST_TRIALS, "importances"
    )  # before a library that takes its time
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ModuleNotFoundError:
        raise StudyError("importances must have scikit-learn, got none; install weft[tune]") from None
    draw = np.random.default_rng(state.config.seed)
    shares = np.array([_losses(ExtraTreesRegressor, table, ranks, draw) for _ in range(resamples)])
    shares = np.maximum(shares, 0.0)
    total = shares.mean(axis=0).sum() or 1.0
    spread = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
    made = [
        ParameterImportance(
            name=name,
            share=round(float(shares[:, index].mean() / total), 6),
            low=round(float(np.quantile(spread[:, index], 0.05)), 6),
            high=round(float(np.quantile(spread[:, index], 0.95)), 6),
        )
        for index, name in enumerate(names)
    ]
    return sorted(made, key=lambda one: (-one.share, one.name))


def trial_table(state: SearchState, least: int, what: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the parameters, their values in completed trials as numbers, and the ranks of these from 0 to 1."""
    import numpy as np

    done = [trial for trial in state.in_state("completed") if math.isfinite(trial.last_score)]
    if len(done) < least:
        raise StudyError(f"{what} must have at least {least} completed trials, got {len(done)}; run more")
    names = [name for name in state.space.searched if any(name in trial.params for trial in done)]
    columns = {name: [_place(state.space.domains[name], t.params.get(name)) for t in done] for name in names}
    table = np.array([columns[name] for name in names], dtype=float).T
    ranks = np.argsort(np.argsort([trial.last_score for trial in done])) / (len(done) - 1)
    return names, table, ranks


def _losses(forest: Any, table: np.ndarray, ranks: np.ndarray, draw: np.random.Generator) -> list[float]:
    """Return what one resample's forest loses without each parameter, on the trials that it has not seen."""
    import numpy as np

    chosen = draw.integers(len(table), size=len(table))
    left = np.setdiff1d(np.arange(len(table)), chosen)
    if len(left) < 2:
        return [0.0] * table.shape[1]
    model = forest(n_estimators=TREES, min_samples_leaf=2, random_state=int(draw.integers(2**31)))
    model.fit(table[chosen], ranks[chosen])
    before = float(np.mean((model.predict(table[left]) - ranks[left]) ** 2))
    losses = []
    for index in range(table.shape[1]):
        after = []
        for _ in range(EXCHANGES):
            moved = table[left]
            moved[:, index] = draw.permutation(moved[:, index])
            after.append(float(np.mean((model.predict(moved) - ranks[left]) ** 2)))
        losses.append(float(np.mean(after)) - before)
    return losses


def _place(domain: Domain, value: Any) -> float:
    """Return a value as a number for a forest; -1: the trial does not have the parameter."""
    match domain:
        case _ if value is None and not domain.contains(None):
            return -1.0
        case LogRange():
            return math.log(value)
        case FloatRange() | IntRange():
            return float(value)
        case OrderedChoices(values=values):
            return float(values.index(value))
    return float(domain.grid(2).index(value))
