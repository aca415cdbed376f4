"""The budget of a run is spent by these rules: rows of the search, seconds of a trial, what final models are left.

All of it decides from measured seconds; nothing here looks at a clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from weft.auto.folder import ModelTrial

# Cells (rows x columns x outputs) that the search looks at, for a second of the budget.
SEARCH_CELLS_PER_S = 20_000
FEWEST_SEARCH_ROWS = 4_000  # and rows of a final model
FIRST_SHARE = 0.25  # of the time that is left, for the first trial of a family
LEAST_RESERVE = 0.12  # share of the budget that is kept for the final models while nothing is measured
MOST_RESERVE = 0.5  # share of the budget that is kept at most: what does not fit then is left out
EXPLAIN_SHARE = 0.1  # of the budget, at most, for explanations
MEMBER_SHARE = (
    0.15  # of the budget, for the two fits of a final model: a slower one is kept if the others are worse
)
WORSE = 1.1  # times the best loss, at most, of a model that is quick enough
REFIT_SHARE = 0.8  # a measured fit of as many rows must fit into this share of the time that is left


def search_rows(rows: int, columns: int, outputs: int, budget_s: float) -> int:
    """Return how many rows the search looks at: all, or as many as some trials of a boosting can afford."""
    cells = SEARCH_CELLS_PER_S * budget_s
    return min(rows, max(FEWEST_SEARCH_ROWS, int(cells / max(1, columns * outputs))))


def first_trial_s(left_s: float, untried: int) -> float:
    """Return how long the first trial of a family may take, where `untried` families (it included) have had none."""
    return left_s * max(FIRST_SHARE, 1.0 / max(1, untried))


def expected_s(trials: Sequence[ModelTrial], family: str) -> float:
    """Return how long a further trial of a family will take: the median of those that were carried through.

    Where all were given up, it is longer than the longest of them.
    """
    own = [one for one in trials if one.family == family]
    spent = [one.seconds for one in own if one.loss is not None]
    return statistics.median(spent) if spent else 1.5 * max((one.seconds for one in own), default=0.0)


def fit_s(trial: ModelTrial, growth: float) -> float:
    """Return how long the model of a trial takes to fit to `growth` times the rows of a fold."""
    fold_s = trial.fit_s or trial.seconds / max(1, len(trial.fold_losses))
    return growth * fold_s


def affordable(trials: Sequence[ModelTrial], costs_s: Mapping[int, float], room_s: float) -> list[ModelTrial]:
    """Return the trials whose models can be fitted in some seconds; all, where those are much worse than the best."""
    cheap = [one for one in trials if costs_s[one.number] <= room_s]
    least = min((one.loss for one in trials if one.loss is not None), default=0.0)
    good = any(one.loss is not None and one.loss <= WORSE * least for one in cheap)
    return cheap if good else list(trials)


def together_s(costs_s: Collection[float], cores: int) -> float:
    """Return how long fits take that run on all cores, each on one."""
    return max(max(costs_s, default=0.0), sum(costs_s) / cores)


def reserve_s(members: Sequence[ModelTrial], growth: float, budget_s: float, cores: int = 1) -> float:
    """Return what to keep for the end: two fits of each member, their predictions and the explanations.

    The second fit is of all rows, a quarter more than the first. A reserve is never more than half of the budget: the
    final models are then fewer, or of fewer rows.
    """
    fits = together_s([fit_s(one, growth) for one in members], cores) * (1 + 1.25)
    wanted = 1.1 * fits + 0.5 * EXPLAIN_SHARE * budget_s
    return min(MOST_RESERVE * budget_s, max(LEAST_RESERVE * budget_s, wanted))


@dataclass(frozen=True)
class FinalPlan:
    """The final models: their weights by trial, and the share of the rows that they are fitted to."""

    weights: dict[int, float]
    rows_share: float = 1.0


def final_plan(
    weights: Mapping[int, float],
    costs_s: Mapping[int, float],
    left_s: float,
    least_share: float = 0.02,
    cores: int = 1,
) -> FinalPlan:
    """Return the heaviest members whose first fits take half of the time left; at least one, of fewer rows if need be.

    `costs_s` are the seconds of a fit to all rows of the search.
    """
    order = sorted(weights, key=lambda number: (-weights[number], number))
    room, kept = 0.5 * left_s, [order[0]]
    for number in order[1:]:
        if together_s([costs_s[one] for one in (*kept, number)], cores) <= room:
            kept.append(number)
    spent = together_s([costs_s[one] for one in kept], cores)
    share = 1.0 if spent <= room else max(least_share, room / spent)
    total = sum(weights[number] for number in kept)
    return FinalPlan({number: weights[number] / total for number in kept}, min(1.0, share))


def fits_again(first_s: float, growth: float, left_s: float) -> bool:
    """Return whether there is time to fit the final models to all rows, after a fit that took `first_s`."""
    return first_s * growth <= REFIT_SHARE * left_s


@dataclass(frozen=True)
class ExplainSizes:
    """The numbers of rows and orders that explanations ask a model for."""

    judged: int = 1000  # of the held-out rows, for importance and dependence
    explained: int = 40  # whose predictions are taken apart
    orders: int = 16  # of columns, for each explained row; half of them are the others backwards

    def asked_rows(self, columns: int) -> int:
        """Return how many rows a model is asked for."""
        shapley = self.orders * self.explained * (columns + 1)
        return shapley + self.judged * (columns + 1) + 6 * 20 * min(200, self.judged)


def explain_sizes(columns: int, row_s: float, call_s: float, left_s: float) -> ExplainSizes:
    """Return the largest explanations that fit the time: a row costs `row_s`, a question `call_s` in any case."""
    sizes = ExplainSizes()
    for part in (1.0, 0.5, 0.25, 0.1):
        sizes = ExplainSizes(max(100, int(1000 * part)), max(8, int(40 * part)), max(4, 2 * round(8 * part)))
        calls = sizes.orders + columns + 6 * 20
        if sizes.asked_rows(columns) * row_s + calls * call_s <= left_s:
            return sizes
    return sizes
