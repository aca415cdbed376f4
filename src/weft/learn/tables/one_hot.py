"""Finds groups of a sparse table's columns that are the one-hot code of a category: rows have one constant in each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

SOME = 1000  # rows that tell most other tables apart


class OneHotGroup(NamedTuple):
    """Columns from start to stop, of which every row stores one, always with the same value."""

    start: int
    stop: int
    value: float


def one_hot_groups(values: Any) -> list[OneHotGroup]:
    """Return the groups of a CSR matrix whose rows store equally many numbers, in the same order of groups."""
    rows, each = values.shape[0], _stored_by_each_row(values)
    if not each:
        return []
    indices = values.indices[: rows * each].reshape(rows, each)
    data = values.data[: rows * each].reshape(rows, each)
    found: list[OneHotGroup] = []
    for part in (slice(SOME), slice(None)):
        first, last = indices[part].min(axis=0), indices[part].max(axis=0)
        alike = (data[part] == data[0]).all(axis=0) & (data[0] != 0)
        groups = np.flatnonzero(alike & _apart(first, last))
        found = [OneHotGroup(int(first[g]), int(last[g]) + 1, float(data[0, g])) for g in groups]
        if not found:
            break
    return found


def _stored_by_each_row(values: Any) -> int:
    """Return how many numbers each row stores; 0 where rows differ."""
    rows = values.shape[0]
    each = values.nnz // max(1, rows)
    return each if each and bool((np.diff(values.indptr) == each).all()) else 0


def _apart(first: Array, last: Array) -> Array:
    """Return which ranges of columns, from first to last, overlap no other."""
    order = np.argsort(first, kind="stable")
    before = np.maximum.accumulate(last[order])
    apart = np.ones(len(order), bool)
    apart[1:] &= before[:-1] < first[order][1:]
    apart[:-1] &= last[order][:-1] < first[order][1:]
    found = np.empty(len(order), bool)
    found[order] = apart
    return found
