"""Categorical columns: which they are, and their categories as whole numbers from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.learn.workers.faults import check_alike
from weft.learn.workers.group import current_workers

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Categories:
    """Columns of categories by place; those of a frame with the categories that the fit saw."""

    columns: tuple[int, ...]
    known: dict[int, Array]

    def mask(self, count: int) -> Array:
        mask = np.zeros(count, bool)
        mask[list(self.columns)] = True
        return mask

    def encoded(self, X: Any) -> Any:
        """The table with categories as numbers; a category that the fit did not see is missing."""
        if not self.known or not hasattr(X, "columns"):
            return X
        X = X.copy() if hasattr(X, "copy") else X.clone()
        names = list(X.columns)
        for column, known in self.known.items():
            X = _replaced(X, names[column], codes_of(_values(X[names[column]]), known))
        return X


def find_categories(X: Any, asked: Any) -> Categories:
    """`asked`: None, "from_dtype" (a frame's categorical columns), names, places, or a mask."""
    if asked is None or (isinstance(asked, str) and asked == "from_dtype" and not hasattr(X, "columns")):
        return Categories((), {})
    names = list(map(str, X.columns)) if hasattr(X, "columns") else []
    if isinstance(asked, str) and asked == "from_dtype":
        places = [i for i, name in enumerate(X.columns) if _is_category(X[name].dtype)]
    else:
        places = _places(np.asarray(asked), names, X.shape[1])
    found = {}
    for place in places:
        if names and not _is_number(X[X.columns[place]].dtype):
            found[place] = _distinct(_values(X[X.columns[place]]))
    known = {place: _known(values) for place, values in _of_everyone(found).items()}
    return Categories(tuple(places), known)


def _of_everyone(found: dict[int, set[Any]]) -> dict[int, set[Any]]:
    """The categories that any worker has: a code must mean the same to all of them."""
    others = current_workers()
    if others is None:
        return found
    told = others.gathered(found)
    check_alike("categories in the same columns", [str(list(each)) for each in told])
    return {place: set().union(*(each[place] for each in told)) for place in found}


def check_codes(X: Array, columns: tuple[int, ...]) -> None:
    """Categories that came as numbers must be whole ones."""
    for column in columns:
        values = X[:, column]
        bad = ~np.isnan(values) & ((values != np.floor(values)) | np.isinf(values))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"categories must be whole numbers, got {values[row]:g} in row {row}, "
                f"column {column}; encode them, or leave the column out of categorical_features"
            )


def codes_of(values: Array, known: Array) -> Array:
    """The places of values among known categories, as floats; NaN for others."""
    place = {category: float(code) for code, category in enumerate(known.tolist())}
    return np.array([place.get(value, np.nan) for value in values.tolist()])


def _places(asked: Array, names: list[str], columns: int) -> list[int]:
    if asked.dtype == bool:
        if len(asked) != columns:
            raise ValueError(f"categorical_features must be a mask of {columns} columns, got {len(asked)}")
        return [int(place) for place in np.flatnonzero(asked)]
    if asked.dtype.kind in "iu":
        if asked.size and not (asked.min() >= 0 and asked.max() < columns):
            raise ValueError(
                f"categorical_features must be between 0 and {columns - 1}, got {asked.tolist()}"
            )
        return [int(place) for place in asked]
    unknown = [name for name in asked.tolist() if name not in names]
    if unknown:
        raise ValueError(f"categorical_features must be columns of X, got {unknown}; X has {names}")
    return [names.index(name) for name in asked.tolist()]


def _distinct(values: Array) -> set[Any]:
    return {value for value in values.tolist() if value is not None and value == value}


def _known(found: set[Any]) -> Array:
    return np.array(sorted(found, key=lambda value: (type(value).__name__, value)), object)


def _values(column: Any) -> Array:
    return np.asarray(column.to_numpy(), object)


def _is_category(dtype: Any) -> bool:
    return str(dtype).lower().startswith(("category", "categorical", "enum"))


def _is_number(dtype: Any) -> bool:
    name = str(dtype).lower()
    return not _is_category(dtype) and any(kind in name for kind in ("int", "float", "bool"))


def _replaced(X: Any, name: Any, codes: Array) -> Any:
    if hasattr(X, "with_columns"):  # polars
        import polars

        return X.with_columns(polars.Series(name, codes))
    X[name] = codes
    return X
