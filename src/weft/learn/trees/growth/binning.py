"""Columns cut into up to 255 bins, and tables of bin codes: what trees are grown from.

Where a column has no more distinct values than bins, each has its own and no split is lost. Otherwise bins hold equal
shares of a sample. Codes take a byte; 255 stands for a missing value. Values are compared as float32, as in
scikit-learn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from scipy import sparse

from weft.learn.tables.mapped import Mapped, Window, map_of
from weft.learn.threads import ThreadTeam
from weft.learn.trees.kernels.binning import MISSING, code_columns, group_columns
from weft.learn.workers.group import current_workers

Array = np.ndarray[Any, Any]

MOST = 255  # bins of values
SAMPLE = 1 << 15  # rows that quantiles are taken from: over a hundred for each bin
CHUNK = 1 << 15  # rows coded by one task
LINE = 64  # bytes that the processor fetches at once


@dataclass(frozen=True)
class Bins:
    """The cuts of columns into bins: a code is how many of `cuts` lie below the value."""

    cuts: Array  # (columns, 256) float32, filled up with infinity
    low: Array  # (columns, 256) float64: where a bin begins, as thresholds see it
    high: Array  # (columns, 256) float64: where it ends
    categorical: Array  # (columns,) bool: the code is the category

    @property
    def columns(self) -> int:
        return len(self.cuts)

    def thresholds(self, features: Array, bins: Array, following: Array) -> Array:
        """Midway between a bin and the next that holds rows; infinite where only missing values follow."""
        middle = self.high[features, bins] / 2 + self.low[features, following] / 2
        return np.where(following == MISSING, np.inf, middle)


def find_bins(X: Any, max_bins: int, random: np.random.RandomState, categorical: Array | None = None) -> Bins:
    """Decide the bins from a sample of the rows of an array or CSC matrix."""
    rows, columns = X.shape
    others = current_workers()
    most = SAMPLE if others is None else SAMPLE // others.size
    chosen = slice(None) if rows <= most else _some_of(rows, most, random)
    some = np.asarray(X.tocsr()[chosen].toarray() if sparse.issparse(X) else X[chosen], np.float32)
    if others is not None:
        some = np.concatenate(others.gathered(some))
    kinds = np.zeros(columns, bool) if categorical is None else categorical
    return bins_of_sample(some, max_bins, kinds)


def _some_of(rows: int, count: int, random: np.random.RandomState) -> Array:
    """Return random row numbers, ascending; of very many rows without a list of all of them."""
    if rows < 8 * count:
        return np.sort(random.choice(rows, count, replace=False))
    return np.unique(random.randint(0, rows, count))


def bins_of_sample(sample: Array, max_bins: int, categorical: Array) -> Bins:
    """The bins of rows that stand for all of them."""
    columns = sample.shape[1]
    cuts = np.full((columns, 256), np.inf)
    low, high = np.zeros((columns, 256)), np.zeros((columns, 256))
    ordered = np.sort(np.ascontiguousarray(sample.T), axis=1)  # NaN comes last
    for column, values in enumerate(ordered):
        if categorical[column]:
            cuts[column, : MOST - 1] = np.arange(MOST - 1) + 0.5
            continue
        if np.isnan(values[-1]):
            values = values[: np.searchsorted(values, np.nan)]
        if not len(values):
            continue
        own, begin, end = _cut(values.astype(np.float64), max_bins)
        cuts[column, : len(own)] = own
        low[column, : len(begin)], high[column, : len(end)] = begin, end
    return Bins(rounded_down(cuts), low, high, categorical)


def _cut(values: Array, max_bins: int) -> tuple[Array, Array, Array]:
    """Cuts of ascending values, and where each bin begins and ends for the purpose of thresholds."""
    new = np.flatnonzero(values[1:] > values[:-1]) + 1
    if len(new) < max_bins:
        distinct = values[np.concatenate([[0], new])]
        return distinct[:-1] / 2 + distinct[1:] / 2, distinct, distinct
    ranks = np.arange(1, max_bins) * len(values) // max_bins
    # A cut must part different values: move each to the next place where values change.
    ranks = np.unique(new[np.minimum(np.searchsorted(new, ranks), len(new) - 1)])
    cuts = values[ranks - 1] / 2 + values[ranks] / 2
    return cuts, np.concatenate([[-np.inf], cuts]), np.concatenate([cuts, [np.inf]])


def rounded_down(cuts: Array) -> Array:
    """The largest float32 that is not above: a float32 value compares with it as with the cut itself."""
    near = cuts.astype(np.float32)
    return np.where(near > cuts, np.nextafter(near, np.float32(-np.inf)), near)


@dataclass(frozen=True)
class Codes:
    """A table of bin codes: (groups, rows, 8), eight columns side by side, or (rows, columns or more)."""

    values: Array
    columns: int
    bins: Bins
    # The codes of grouped columns once more, (columns, rows): quicker to divide rows by.
    apart: Array | None = None
    window: Window | None = None  # where they are in a file
    room: int | None = None  # bytes that are to be made do with, there

    def column(self, column: int) -> Array:
        """The codes of one column."""
        if self.apart is not None:
            codes: Array = self.apart[column]
            return codes
        return self.values[column // 8, :, column % 8] if self.grouped else self.values[:, column]

    def let_go(self, group: int | None = None) -> None:
        """Drop codes in a file, all or those of a group, from the process's memory until they are needed again."""
        if self.window is None:
            return
        if group is None:
            self.window.let_go()
        else:
            size = self.rows * 8
            self.window.let_go(group * size, size)

    @property
    def rows(self) -> int:
        return int(self.values.shape[1 if self.grouped else 0])

    @property
    def grouped(self) -> bool:
        return self.values.ndim == 3

    @cached_property
    def begins(self) -> Array:
        """Where the bins of each grouped column begin, and the last ones end, if those of all lie close together.

        A column with missing values has all 256.
        """
        assert self.apart is not None, "columns are looked through one by one"
        used = np.isfinite(self.bins.cuts).sum(axis=1) + 1
        used[self.apart.max(axis=1, initial=0) == MISSING] = 256
        return np.concatenate([[0], np.cumsum(used)])

    @property
    def groups(self) -> Array:
        """The codes as (groups, rows), eight codes in each word."""
        return self.values.view(np.uint64)[..., 0]


def in_file(rows: int, columns: int, room: int | None) -> bool:
    """Whether the codes of so large a table go to a file."""
    return room is not None and rows * columns > room


def empty_codes(rows: int, columns: int, *, grouped: bool, room: int | None = None) -> Array:
    """Codes to be filled in: in memory, or in a file that has no name where they take more than `room` bytes."""
    shape = (-(-columns // 8), rows, 8) if grouped else (rows, _row_bytes(columns))
    if not in_file(rows, columns, room):
        # Rows begin where lines of the cache do.
        flat = np.zeros(math.prod(shape) + LINE, np.uint8)
        begin = -flat.ctypes.data % LINE
        return flat[begin : begin + math.prod(shape)].reshape(shape)
    with TemporaryFile() as file:
        return np.asarray(np.memmap(file, np.uint8, "w+", shape=shape))


def _row_bytes(columns: int) -> int:
    """Bytes of a row of codes, so that few rows lie across two lines of the cache."""
    return min(size for size in (8, 16, 32, LINE * -(-columns // LINE)) if size >= columns)


def code_table(X: Any, bins: Bins, team: ThreadTeam, *, grouped: bool, room: int | None = None) -> Codes:
    """The codes of an array or CSC matrix; an infinite value is an error that says where it is."""
    rows, columns = X.shape
    values = empty_codes(rows, columns, grouped=grouped, room=room)
    roomy = room is None or 2 * rows * columns <= room
    apart = np.empty((columns, rows), np.uint8) if grouped and roomy else None
    window = Window(values, 0) if map_of(values) is not None else None
    codes = Codes(values, columns, bins, apart, window, room)
    if sparse.issparse(X):
        X = X.tocsr()  # to be cut into chunks of rows
    starts = range(0, rows, CHUNK)
    list(team.map(lambda start: _code_rows(X, codes, start), starts))
    if isinstance(X, Mapped):
        X.window.let_go()
    return codes


def _code_rows(X: Any, codes: Codes, start: int) -> None:
    """Code one chunk of rows."""
    part = X[start : start + CHUNK]
    columns = np.empty((codes.columns, part.shape[0]), np.uint8)
    if sparse.issparse(part):
        _code_sparse(part.tocsc(), codes.bins, columns)
    else:
        bad = code_columns(part, codes.bins.cuts, 0, columns)
        if bad >= 0:
            row, column = divmod(bad, codes.columns)
            raise ValueError(
                f"Input X contains infinity or a value too large for dtype('float32'): "
                f"got {part[row, column]!r} in row {start + row}, column {column}"
            )
    stop = start + part.shape[0]
    if codes.grouped:
        group_columns(columns, start, codes.groups)
    else:
        codes.values[start:stop, : codes.columns] = columns.T
    if codes.apart is not None:
        codes.apart[:, start:stop] = columns
    codes.let_go()


def _code_sparse(X: Any, bins: Bins, codes: Array) -> None:
    for column in range(X.shape[1]):
        target, cuts = codes[column], bins.cuts[column]
        target[:] = np.searchsorted(cuts, np.float32(0))
        inside = slice(X.indptr[column], X.indptr[column + 1])
        values = X.data[inside].astype(np.float32)
        if np.isinf(values).any():
            raise ValueError(f"Input X contains infinity in column {column}")
        target[X.indices[inside]] = np.where(np.isnan(values), MISSING, np.searchsorted(cuts, values))
