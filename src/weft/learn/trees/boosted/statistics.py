"""Columns of more categories than bins: ordered target statistics in their place.

A category becomes the mean target of the rows before this one, in a random order, that have the same category, drawn
towards the mean of all rows. A row never sees its own target, so that trees cannot learn it by heart, as they do where
categories of few rows are sorted by sums that hold those very rows. Rows to predict take the statistics of all rows.
Of several classes a column becomes one column for each of them; those after the first are at the table's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.learn.trees.growth.binning import MOST
from weft.learn.trees.growth.categories import Categories

Array = np.ndarray[Any, Any]

DRAWN = 10.0  # rows of the mean target that every category is given


@dataclass(frozen=True)
class ColumnStatistics:
    """The categories of a column, ascending, and the statistics of all rows of each."""

    column: int
    known: Array  # (categories,)
    values: Array  # (categories, targets)


@dataclass(frozen=True)
class TargetStatistics:
    """The statistics of all columns that have them; `prior` is what an unknown category gets."""

    columns: tuple[ColumnStatistics, ...]
    prior: Array  # (targets,)

    def applied(self, X: Array) -> Array:
        """Return rows to predict with statistics in the place of categories; what is missing stays so."""
        if not self.columns:
            return X
        return self._filled(X, [self._looked_up(one, X[:, one.column]) for one in self.columns])

    def origins(self, columns: int) -> Array:
        """Return, for each column of the table with statistics, the user's column that it comes from."""
        more = [one.column for one in self.columns for _ in range(len(self.prior) - 1)]
        return np.array([*range(columns), *more], np.intp)

    def _looked_up(self, one: ColumnStatistics, codes: Array) -> Array:
        places = np.minimum(np.searchsorted(one.known, codes), len(one.known) - 1)
        found = np.where((one.known[places] == codes)[:, None], one.values[places], self.prior)
        return np.where(np.isnan(codes)[:, None], np.nan, found)

    def _filled(self, X: Array, found: list[Array]) -> Array:
        table = X.copy()
        for one, values in zip(self.columns, found, strict=True):
            table[:, one.column] = values[:, 0]
        more = [values[:, 1:].astype(X.dtype) for values in found if values.shape[1] > 1]
        return np.ascontiguousarray(np.concatenate([table, *more], axis=1)) if more else table


NO_STATISTICS = TargetStatistics((), np.zeros(1))


def large_columns(X: Any, categories: Categories) -> tuple[int, ...]:
    """Return the categorical columns whose categories do not fit the bins."""
    return tuple(column for column in categories.columns if np.nanmax(X[:, column], initial=0) >= MOST)


def ordered_statistics(
    X: Array, columns: tuple[int, ...], targets: Array, weights: Array, random: np.random.RandomState
) -> tuple[Array, TargetStatistics]:
    """Return the table of a fit with ordered statistics of targets (rows, targets), and those for other rows."""
    prior = np.average(targets, axis=0, weights=weights)
    order = random.permutation(len(X))
    kept, found = [], []
    for column in columns:
        codes = X[:, column]
        known, place = np.unique(codes, return_inverse=True)  # NaN is one category, the last
        sums, counts = _before(place[order], targets[order], weights[order])
        ordered = np.empty((len(X), targets.shape[1]))
        ordered[order] = (sums + DRAWN * prior) / (counts + DRAWN)[:, None]
        ordered[np.isnan(codes)] = np.nan
        found.append(ordered)
        whole = np.stack([np.bincount(place, weights * t, len(known)) for t in targets.T], axis=1)
        heavy = np.bincount(place, weights, len(known))[:, None]
        kept.append(ColumnStatistics(column, known, (whole + DRAWN * prior) / (heavy + DRAWN)))
    statistics = TargetStatistics(tuple(kept), prior)
    return statistics._filled(X, found), statistics


def _before(place: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
    """Return, for each row, the weighted sums of targets and the weights of earlier rows of the same category."""
    by = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[by], place[by])
    own = np.column_stack([weights, targets * weights[:, None]])[by]
    running = np.cumsum(own, axis=0) - own
    earlier = np.empty_like(own)
    earlier[by] = running - running[starts]
    return earlier[:, 1:], earlier[:, 0]
