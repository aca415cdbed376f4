"""Interactions of parameters: how much of the difference between trials no sum of single effects explains.

For each pair this is Friedman and Popescu's H squared. A forest predicts the rank of a trial; its answers are averaged
over the other parameters, at the trials' own values of the pair, and of each one alone. The share of the pair's
variance that is left when both single averages are subtracted is the interaction: 0 where effects only add up.
Resamples of the trials tell how sure it is.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import msgspec

from weft.tune.results.importance import LEAST_TRIALS, TREES, trial_table
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 8
MOST_ROWS = 40  # of a resample at which averages are taken
MOST_PARAMETERS = 8  # the most important ones; pairs grow by the square


class ParameterInteraction(msgspec.Struct, frozen=True, kw_only=True):
    """The interaction of two parameters: the share of their joint effect that is not a sum, with its spread."""

    first: str
    second: str
    share: float
    low: float
    high: float


def interactions(
    state: SearchState, *, names: tuple[str, ...] | None = None, resamples: int = RESAMPLES
) -> list[ParameterInteraction]:
    """Return the interaction of each pair of parameters, the largest first; `names` are the parameters to look at."""
    import numpy as np

    known, table, ranks = trial_table(state, LEAST_TRIALS, "interactions")
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ModuleNotFoundError:
        raise StudyError("interactions must have scikit-learn, got none; install weft[tune]") from None
    chosen = [name for name in (names or tuple(known)) if name in known][:MOST_PARAMETERS]
    draw = np.random.default_rng(state.config.seed)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(resamples):
        rows = draw.integers(len(table), size=len(table))
        model = ExtraTreesRegressor(
            n_estimators=TREES, min_samples_leaf=2, random_state=int(draw.integers(2**31))
        ).fit(table[rows], ranks[rows])
        sample = table[draw.permutation(len(table))[:MOST_ROWS]]
        alone = {name: _average(model, sample, (known.index(name),)) for name in chosen}
        for first, second in itertools.combinations(chosen, 2):
            both = _average(model, sample, (known.index(first), known.index(second)))
            found.setdefault((first, second), []).append(_share(both, alone[first], alone[second]))
    made = [
        ParameterInteraction(
            first=first,
            second=second,
            share=round(float(np.mean(shares)), 6),
            low=round(float(np.quantile(shares, 0.05)), 6),
            high=round(float(np.quantile(shares, 0.95)), 6),
        )
        for (first, second), shares in found.items()
    ]
    return sorted(made, key=lambda one: (-one.share, one.first, one.second))


def _average(model: Any, sample: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    """Return the forest's answers at each row's values of some columns, averaged over the others; their mean is 0."""
    import numpy as np

    count = len(sample)
    grid = np.tile(sample, (count, 1))  # for each row, all rows
    grid[:, columns] = np.repeat(sample[:, columns], count, axis=0)
    means: np.ndarray = model.predict(grid).reshape(count, count).mean(axis=1)
    centred: np.ndarray = means - means.mean()
    return centred


def _share(both: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return H squared of a pair; 0 where the pair has no effect to speak of."""
    whole = float((both**2).sum())
    rest = float(((both - first - second) ** 2).sum())
    return 0.0 if whole < 1e-6 * len(both) else min(1.0, rest / whole) if math.isfinite(rest) else 0.0
