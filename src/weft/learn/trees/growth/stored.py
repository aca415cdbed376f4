"""Sparse tables as trees see them: bins of the stored values of each column, and the bin of every stored value.

Zero has a bin of its own, which is never stored. A column has no more bins than its stored values can tell apart: in
memory and in time, a table costs what it stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from weft.learn.trees.growth.binning import SAMPLE
from weft.learn.trees.kernels.stored import code_stored

Array = np.ndarray[Any, Any]

EACH = 8  # stored values for each bin, where there are more distinct ones than bins
FEWEST = 16  # bins of a column that has so many values
NOTHING = np.zeros(1)  # where the bin of what is missing begins, and ends
DENSE = 0.2  # share of stored values from which a table is quicker as a dense one


@dataclass(frozen=True)
class StoredBins:
    """The bins of all columns, one after the other; the last of each column is for what is missing."""

    first: Array  # (columns + 1,): where each column's bins begin
    zeros: Array  # (columns,): the bin of zero
    low: Array  # (bins,) float64: where a bin begins, as thresholds see it
    high: Array  # (bins,): where it ends

    @property
    def columns(self) -> int:
        return len(self.zeros)

    @property
    def categorical(self) -> Array:
        return np.zeros(self.columns, bool)

    @property
    def widest(self) -> int:
        return int(np.diff(self.first).max(initial=1))

    def thresholds(self, features: Array, bins: Array, following: Array) -> Array:
        """Midway between a bin and the next that holds rows; infinite where only missing values follow."""
        begin = self.first[features]
        middle = self.high[begin + bins] / 2 + self.low[begin + np.maximum(following, 0)] / 2
        return np.where(following < 0, np.inf, middle)


@dataclass(frozen=True)
class StoredCodes:
    """The bins of stored values that are not zero's, row by row."""

    ends: Array  # (rows + 1,)
    codes: Array  # (stored,) int32, ascending within a row
    bins: StoredBins
    # The same column by column:
    column_ends: Array  # (columns + 1,)
    holders: Array  # (stored,): the rows that store a value
    column_codes: Array  # (stored,) int32

    @property
    def rows(self) -> int:
        return len(self.ends) - 1

    @property
    def columns(self) -> int:
        return self.bins.columns


def is_sparse_enough(X: Any) -> bool:
    """Return whether trees are to be grown from the stored values of a table alone."""
    return bool(sparse.issparse(X) and X.nnz < DENSE * X.shape[0] * X.shape[1])


def code_sparse_table(X: Any, max_bins: int) -> StoredCodes:
    """Return the codes of a CSC matrix; an infinite value is an error that says where it is."""
    X = X.tocsc()
    cuts, lows, highs = [], [], []
    for j in range(X.shape[1]):
        own, low, high = _column_cuts(X.data[X.indptr[j] : X.indptr[j + 1]], max_bins)
        cuts.append(own)
        lows += [low, NOTHING]
        highs += [high, NOTHING]
    cut_ends = np.concatenate([[0], np.cumsum([len(own) for own in cuts])])
    first = np.concatenate([[0], np.cumsum([len(low) + 1 for low in lows[::2]])])
    rounded = _rounded(np.concatenate(cuts))
    below = np.concatenate([[0], np.cumsum(rounded < 0)])
    zeros = first[:-1] + below[cut_ends[1:]] - below[cut_ends[:-1]]
    codes = np.empty(X.nnz, np.int32)
    bad = code_stored(X.data, X.indptr, rounded, cut_ends, first, codes)
    if bad >= 0:
        column = int(np.searchsorted(X.indptr, bad, side="right")) - 1
        raise ValueError(
            f"Input X contains infinity or a value too large for dtype('float32'): "
            f"got {X.data[bad]!r} in row {X.indices[bad]}, column {column}"
        )
    codes[codes == np.repeat(zeros, np.diff(X.indptr)) + 1] = (
        0  # zero's bin is what rows have that store nothing
    )
    by_column = sparse.csc_matrix((codes, X.indices, X.indptr), shape=X.shape, copy=bool((codes == 0).any()))
    by_column.eliminate_zeros()
    by_row = by_column.tocsr()
    by_row.data -= 1
    by_column.data -= 1
    bins = StoredBins(first, zeros, np.concatenate(lows), np.concatenate(highs))
    return StoredCodes(by_row.indptr, by_row.data, bins, by_column.indptr, by_column.indices, by_column.data)


def _column_cuts(stored: Array, max_bins: int) -> tuple[Array, Array, Array]:
    """Return the cuts of a column, and where its bins begin and end for the purpose of thresholds."""
    if len(stored) > SAMPLE:
        stored = stored[:: len(stored) // SAMPLE]
    ordered = np.sort(stored.astype(np.float32))  # NaN comes last
    if len(ordered) and not (np.isfinite(ordered[0]) and np.isfinite(ordered[-1])):
        ordered = ordered[np.isfinite(ordered)]
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    distinct = ordered[new].astype(np.float64)
    place = int(np.searchsorted(distinct, 0.0))
    if place == len(distinct) or distinct[place] != 0:
        distinct = np.concatenate([distinct[:place], [0.0], distinct[place:]])
    if len(distinct) <= max_bins:
        return distinct[:-1] / 2 + distinct[1:] / 2, distinct, distinct
    values = ordered[ordered != 0].astype(np.float64)
    most = min(max_bins - 1, max(FEWEST, len(values) // EACH))
    negative, positive = values[values < 0], values[values > 0]
    share = round(most * len(negative) / len(values))
    cuts = np.unique(
        np.concatenate(
            [
                _quantiles(negative, max(share, 1)),
                [negative[-1] / 2] if len(negative) else [],
                [positive[0] / 2] if len(positive) else [],
                _quantiles(positive, max(most - share, 1)),
            ]
        )
    )
    return cuts, np.concatenate([[-np.inf], cuts]), np.concatenate([cuts, [np.inf]])


def _quantiles(values: Array, count: int) -> Array:
    """Return cuts that part ascending values into `count` shares, between different values."""
    new = np.flatnonzero(values[1:] > values[:-1]) + 1
    if count < 2 or not len(new):
        return np.empty(0)
    ranks = np.arange(1, count) * len(values) // count
    ranks = np.unique(new[np.minimum(np.searchsorted(new, ranks), len(new) - 1)])
    between: Array = values[ranks - 1] / 2 + values[ranks] / 2
    return between


def _rounded(cuts: Array) -> Array:
    """Return the largest float32 that is not above each cut."""
    near = cuts.astype(np.float32)
    return np.where(near > cuts, np.nextafter(near, np.float32(-np.inf)), near)
