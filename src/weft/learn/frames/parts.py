"""Predictions for rows that are named and not given: paths, globs, data sets and stored tables are read in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from weft.errors import DataError
from weft.learn.tables.form import StoredTable, is_stored, open_stored
from weft.learn.tables.read import read_chunks
from weft.learn.tables.sizes import share_out
from weft.learn.tables.source import files_here, is_plain, open_source
from weft.learn.tables.svmlight import LABEL, is_svmlight

Array = np.ndarray[Any, Any]


def predicted_in_parts(model: Any, predict: Callable[..., Any], X: Any) -> Any:
    """Return the predictions of a fitted model for all rows of a source, in their order."""
    check_is_fitted(model)
    plain = without_names(model)
    return np.concatenate([predict(plain, rows) for rows in _parts(model, X)])


def without_names(model: Any) -> Any:
    """Return a model for rows without names of columns."""
    plain = copy(model)
    vars(plain).pop("feature_names_in_", None)
    return plain


def _parts(model: Any, X: Any) -> Iterator[Any]:
    if isinstance(X, str | Path) and is_stored(Path(X)):
        X = open_stored(Path(X))
    if isinstance(X, StoredTable):
        yield from _stored_parts(model, X)
        return
    if not is_plain(X):
        yield from _rows_of(X, X, model)
        return
    with files_here(X) as files:
        if all(map(is_svmlight, files)):
            yield from _stored_parts(model, open_source(X, LABEL))
            return
        for file in files:
            yield from _rows_of(file, file, model)


def _rows_of(source: Any, what: Any, model: Any) -> Iterator[Array]:
    names = list(map(str, getattr(model, "feature_names_in_", ())))
    if not names:
        raise DataError(
            f"a model must know the names of its columns to read files, got one fitted to an array for {what}; "
            "fit it to a frame or to files"
        )
    for chunk in read_chunks(source, names, None, share_out(None, len(names)).chunk_rows):
        if chunk.bad:
            raise DataError(f"rows to predict must be whole, got {chunk.bad[0]}; mend or remove that row")
        yield chunk.values


def _stored_parts(model: Any, table: StoredTable) -> Iterator[Any]:
    """Yield the rows of a stored table, with the columns that the model was fitted to."""
    rows, described = table.features(), table.description
    if described.sparse:
        rows.resize((rows.shape[0], max(rows.shape[1], model.n_features_in_)))
        yield rows
        return
    names = list(getattr(model, "feature_names_in_", described.columns))
    absent = [name for name in names if name not in described.columns]
    if absent:
        raise DataError(
            f"{table.folder} must have the column {absent[0]!r} of the fit, got none; convert it again"
        )
    places = [described.columns.index(name) for name in names]
    whole = places == list(range(described.count))
    step = share_out(None, described.count).chunk_rows
    for start in range(0, described.rows, step):
        part = np.asarray(rows[start : start + step])
        yield part if whole else part[:, places]
