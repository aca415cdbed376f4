"""Columns of frames that came here, as estimators take them: numbers and categories; others are refused by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from weft.errors import DataError

Array = np.ndarray[Any, Any]

DATES = {"M": "dates", "m": "durations"}  # by the kind of a dtype
OBJECTS = {  # what pandas finds in a column of objects, or of a type of Arrow's
    "string": "text",
    "decimal": "holed",
    "datetime": "dates",
    "datetime64": "dates",
    "date": "dates",
    "period": "dates",
    "time": "times",
    "timedelta": "durations",
    "bytes": "bytes",
}
POLARS = {
    "String": "text",
    "Categorical": "category",
    "Enum": "category",
    "Decimal": "holed",
    "Null": "holed",
}


def target_of(column: Any, name: str, what: str) -> Array:
    """Return a column of targets or weights as an array; DataError where it lacks a value."""
    holes = np.asarray(column.is_null() if hasattr(column, "is_null") else column.isna())
    if holes.any():
        raise DataError(
            f"{what} must be there in every row, got none in row {int(holes.argmax())} of {name!r}; drop those rows"
        )
    if kind_of(column) == "holed":
        return _as_numbers(column)
    values: Array = column.to_numpy()
    return values


def as_features(frame: Any, model: Any, seen: Collection[int] = ()) -> Any:
    """Return a pandas or polars frame whose decimals, and numbers that may be missing, are floats.

    DataError names the first column that the model does not take. Estimators with `categorical_features` take
    categories, and text where that names columns; to predict, text as well in the places whose categories the fit has
    `seen`.
    """
    named = getattr(model, "categorical_features", None)
    by_name = not (named is None or isinstance(named, str))
    changed: dict[str, Array] = {}
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place] if hasattr(frame, "iloc") else frame[name]
        kind = kind_of(column)
        if place in seen:
            continue
        if kind == "holed":
            changed[name] = _as_numbers(column)
        elif kind == "number" or (kind == "category" and (named is not None or _counts(column))):
            continue
        elif kind == "text" and not by_name and (read := _read(column)) is not None:
            changed[name] = read
        elif not (kind in ("text", "category") and by_name):
            can_name = kind in ("text", "category") and hasattr(model, "categorical_features")
            advice = f"write categorical_features=[{name!r}]" if can_name else "encode it"
            got = "categories" if kind == "category" else kind
            raise DataError(
                f"features of {type(model).__name__} must be numbers, got {got} in {name!r}; {advice} or drop it"
            )
    if not changed:
        return frame
    return frame.assign(**changed) if hasattr(frame, "iloc") else frame.with_columns(**changed)


def kind_of(column: Any) -> str:
    """Return what a column of pandas or polars holds: "number", "holed" (numbers, but no plain floats), or a word."""
    kind = column.dtype
    if not hasattr(column, "iloc"):
        if kind.is_temporal():
            return "durations" if str(kind).startswith("Duration") else "dates"
        return POLARS.get(type(kind).__name__, "lists" if kind.is_nested() else "number")
    if str(kind) == "category":
        return "category"
    code = getattr(kind, "kind", "O")
    if code in DATES:
        return DATES[code]
    if code not in "OUS":
        return "number" if isinstance(kind, np.dtype) or str(kind).startswith("Sparse") else "holed"
    from pandas.api.types import infer_dtype

    return OBJECTS.get(infer_dtype(column, skipna=True), "number")  # scikit-learn judges any other


def _counts(column: Any) -> bool:
    """Return whether categories are numbers."""
    return hasattr(column, "cat") and hasattr(column, "iloc") and column.cat.categories.dtype.kind in "iufb"


def _read(column: Any) -> Array | None:
    """Return the numbers that text spells, as scikit-learn would read them; None where it holds other words."""
    try:
        found: Array = np.asarray(column.to_numpy(), object).astype(np.float64)
        return found
    except (TypeError, ValueError):
        return None


def _as_numbers(column: Any) -> Array:
    """Return numbers as floats, NaN where missing; whole numbers and booleans without holes as they are."""
    if not hasattr(column, "iloc"):
        return np.asarray(column.cast(float, strict=False).to_numpy(), np.float64)
    holes = column.isna().to_numpy()
    code = column.dtype.kind
    if not holes.any() and code in "iufb":
        return np.asarray(column.to_numpy(dtype=np.dtype(column.dtype.numpy_dtype)))
    values = column.astype(object).to_numpy(copy=True)
    values[holes] = np.nan
    found: Array = values.astype(np.float64)
    return found
