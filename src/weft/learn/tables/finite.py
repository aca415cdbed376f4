"""Finds the first value of a table that is not finite, for errors that name its row and column."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from scipy import sparse

from weft.errors import DataError

Array = np.ndarray[Any, Any]

CHUNK = 1 << 14  # rows searched at a time: a table may be larger than memory


def check_finite(X: Any) -> None:
    """Raise an error that names the first value of an array, rows on disk or a CSR matrix that is not finite."""
    found = _first_of_sparse(X) if sparse.issparse(X) else _first_of_dense(X)
    if found is not None:
        row, column, value = found
        raise DataError(f"Input X contains {_word(value)}: row {row}, column {column}")


def with_place(error: ValueError, X: Any, y: Any) -> ValueError:
    """Return scikit-learn's error about a value that is not finite with row and column added; others unchanged."""
    told = re.match(r"Input (X|y) contains (NaN|infinity)", str(error))
    try:
        found = told and (_first_of_frame(X) if told[1] == "X" else _first_of_dense(np.asarray(y, float)))
    except (TypeError, ValueError):  # cells that NumPy cannot convert: keep scikit-learn's message
        return error
    if not told or found is None:
        return error
    row, column, value = found
    where = f"row {row}, column {column}" if told[1] == "X" else f"row {row}"
    return DataError(f"Input {told[1]} contains {_word(value)}: {where}")


def _first_of_frame(X: Any) -> tuple[int, Any, float] | None:
    if sparse.issparse(X):
        return _first_of_sparse(X.tocsr())
    found = _first_of_dense(X if isinstance(X, np.ndarray) else np.asarray(X, float))
    if found is None or not hasattr(X, "columns"):
        return found
    row, column, value = found
    return row, repr(list(X.columns)[column]), value


def _first_of_dense(X: Any) -> tuple[int, int, float] | None:
    for start in range(0, len(X), CHUNK):
        part = np.asarray(X[start : start + CHUNK])
        bad = np.argwhere(~np.isfinite(part.reshape(len(part), -1)))
        if len(bad):
            row, column = map(int, bad[0])
            return start + row, column, float(part.reshape(len(part), -1)[row, column])
    return None


def _first_of_sparse(X: Any) -> tuple[int, int, float] | None:
    bad = np.flatnonzero(~np.isfinite(X.data))
    if not len(bad):
        return None
    place = int(bad[0])
    return int(np.searchsorted(X.indptr, place, "right")) - 1, int(X.indices[place]), float(X.data[place])


def _word(value: float) -> str:
    return "NaN" if np.isnan(value) else "infinity"
