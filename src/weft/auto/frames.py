"""Tables of any kind as raw columns: float64 with NaN for numbers and dates, and text with "" for what is missing.

Files (.csv, .tsv, .parquet, .arrow, .feather), pandas and polars frames, Arrow tables and mappings of arrays are read.
Dates are seconds since 1970 in UTC; text that holds dates or numbers becomes them, by a format that is kept. These raw
columns are also the inputs of an exported model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from weft.auto.reading.files import arrow, read_file
from weft.auto.reading.texts import ISO, POINT, dates_of, find_dates, find_numbers, numbers_of
from weft.errors import DataError
from weft.text import suggestion

Array = np.ndarray[Any, Any]

_SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


MOST_STRANGE = 0.5  # of the values to predict by: where more are no numbers, it is another column


@dataclass(frozen=True)
class RawColumn:
    """One column: `kind` is "number", "date" (both float64), "text" (objects that are str) or "other" (not read).

    `format` tells how text became numbers or dates, and of what type another column is.
    """

    name: str
    kind: str
    values: Array
    format: str = ""

    @property
    def missing(self) -> Array:
        found: Array = self.values == "" if self.kind in ("text", "other") else np.isnan(self.values)
        return found

    def take(self, rows: Array) -> RawColumn:
        return RawColumn(self.name, self.kind, self.values[rows], self.format)


@dataclass(frozen=True)
class RawTable:
    """Columns by name, in their order, all of the same length."""

    columns: dict[str, RawColumn]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).values) if self.columns else 0

    def __getitem__(self, name: str) -> RawColumn:
        return self.columns[name]

    def values(self, name: str) -> Array:
        return self.columns[name].values

    def take(self, rows: Array) -> RawTable:
        """Return some of the rows."""
        return RawTable({name: column.take(rows) for name, column in self.columns.items()})

    def with_values(self, name: str, values: Array) -> RawTable:
        """Return the table with another column in the place of one."""
        changed = RawColumn(name, self.columns[name].kind, values)
        return RawTable({**self.columns, name: changed})


def read_table(
    source: Any,
    kinds: Mapping[str, str] | None = None,
    formats: Mapping[str, str] | None = None,
    *,
    target: str | None = None,
) -> RawTable:
    """Return a file or a frame as raw columns.

    `kinds` names those to read, and what each must be; `formats` tells how text of numbers and dates is written. The
    values of the target are taken as they are: text stays text.
    """
    table = _arrow_table(source)
    table = table.rename_columns(_named(table.column_names))
    names = table.column_names
    if kinds is None:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"columns must have different names, got {twice[0]!r} twice; rename one")
        return RawTable({name: _found_column(name, table.column(name), name == target) for name in names})
    for name in kinds:
        if name not in names:
            raise DataError(
                f"rows must have the column {name!r} of the fit, got none; {suggestion(name, names)}"
            )
    known = formats or {}
    return RawTable(
        {
            name: _wanted_column(name, table.column(name), kind, known.get(name, ""))
            for name, kind in kinds.items()
        }
    )


def _named(names: list[str]) -> list[str]:
    """Return names of columns, as pandas calls those that have none."""
    return [name or f"Unnamed: {place}" for place, name in enumerate(names)]


def _arrow_table(source: Any) -> Any:
    pa = arrow()
    if isinstance(source, (str, PathLike)):
        return read_file(pa, Path(source))
    source = _collected(source)
    if isinstance(source, pa.Table):
        return source
    try:
        if isinstance(source, Mapping):
            return pa.table({str(name): _listed(pa, values) for name, values in source.items()})
        if hasattr(source, "iloc") and hasattr(source, "columns"):  # pandas
            return _from_pandas(pa, source.rename(columns=str))
        if hasattr(source, "__arrow_c_stream__"):  # polars, DuckDB and others
            return pa.table(source)
    except (pa.ArrowException, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"each column must hold one kind of values, got: {reason}; convert it first"
        ) from None
    raise DataError(
        f"a table must be a path, a frame of pandas, polars, DuckDB or Dask, an Arrow table or a mapping, got "
        f"{type(source).__name__}; pass one of these"
    )


def _collected(source: Any) -> Any:
    """Return a frame whose rows are computed or read when they are asked for as one that has them."""
    if hasattr(source, "npartitions") and hasattr(source, "compute"):  # Dask
        return source.compute()
    if type(source).__name__ == "LazyFrame" and hasattr(source, "collect"):  # polars
        return source.collect()
    if type(source).__module__.startswith("pyarrow._dataset"):  # a data set, or a scanner of one
        return source.to_table()
    return source


def _from_pandas(pa: Any, frame: Any) -> Any:
    """Return a frame of pandas; columns of objects of several kinds become text."""
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"columns must have different names, got {twice[0]!r} twice; rename one")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError):
        parts = [_one_kind(pa, frame.iloc[:, place]) for place in range(frame.shape[1])]
        return pa.table(parts, names=list(frame.columns))


def _one_kind(pa: Any, part: Any) -> Any:
    try:
        return pa.array(part, from_pandas=True)
    except (pa.ArrowException, TypeError):
        return pa.array(part.where(part.isna(), part.astype(str)), pa.string(), from_pandas=True)


def _listed(pa: Any, values: Any) -> Any:
    array = np.asarray(values)
    return pa.array(array.tolist() if array.dtype.kind in "OUS" else array)


def _found_column(name: str, column: Any, natural: bool) -> RawColumn:
    """Return a column as what it holds; a natural one keeps its text, and numbers that are called categories."""
    pa = arrow()
    kind = column.type
    if pa.types.is_dictionary(kind):
        plain = _plain(pa, column)
        if natural or _is_text(pa, kind.value_type):
            return _found_column(name, plain, natural)
        return RawColumn(name, "text", _texts(plain))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return RawColumn(name, "number", _numbers(column))
    if pa.types.is_decimal(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return RawColumn(name, "number", _numbers(column))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return RawColumn(name, "date", _seconds(column))
    if pa.types.is_null(kind):
        return RawColumn(name, "number", np.full(len(column), np.nan))
    if pa.types.is_nested(kind) or _is_binary(pa, kind):
        return RawColumn(name, "other", np.full(len(column), "", object), str(kind))
    texts = _texts(column)
    if natural:
        return RawColumn(name, "text", texts)
    if (dates := find_dates(pa, texts)) is not None:
        return RawColumn(name, "date", *dates)
    if (numbers := find_numbers(texts)) is not None:
        return RawColumn(name, "number", *numbers)
    return RawColumn(name, "text", texts)


def _plain(pa: Any, column: Any) -> Any:
    """Return the values of a column that keeps a list of them."""
    inner = column.type.value_type
    if _is_text(pa, inner):  # Arrow cannot take from views of text
        return pa.array([None if one is None else str(one) for one in column.to_pylist()], pa.large_string())
    return column.cast(inner)


def _is_binary(pa: Any, kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _is_text(pa: Any, kind: Any) -> bool:
    return not (
        pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind)
    )  # fmt: skip


def _wanted_column(name: str, column: Any, kind: str, form: str) -> RawColumn:
    """Return a column as the kind that a fit has found; text is read by the format of the fit."""
    pa = arrow()
    if pa.types.is_dictionary(column.type):
        column = _plain(pa, column)
    if pa.types.is_nested(column.type) or _is_binary(pa, column.type):
        raise DataError(f"column {name!r} must hold {kind}s, as in the fit, got {column.type}; convert it")
    if kind == "text":
        return RawColumn(name, kind, _texts(column))
    found: Array | None
    if _is_text(pa, column.type):
        texts = _texts(column)
        if kind == "number":
            found = numbers_of(texts, form or POINT, MOST_STRANGE)
        else:
            found = dates_of(pa, texts, form or ISO)
            if found is None and form != ISO:
                found = dates_of(pa, texts, ISO)
    else:
        dated = pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
        found = _seconds(column) if kind == "date" else None if dated else _numbers(column)
    if found is None:
        told = f" like {form}" if form else ""
        raise DataError(
            f"column {name!r} must hold {kind}s{told}, as in the fit, got {column.type}; convert it"
        )
    return RawColumn(name, kind, found, form)


def _numbers(column: Any) -> Array:
    """Return numbers, with NaN for those that are not finite; times of day and durations are seconds."""
    pa = arrow()
    kind, scale = column.type, 1.0
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        scale = _SECONDS[kind.unit]
        column = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    array: Array = column.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64) / scale
    return np.where(np.isfinite(array), array, np.nan)


def _seconds(column: Any) -> Array:
    """Return dates as seconds since 1970, UTC; numbers are seconds already."""
    pa = arrow()
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return _numbers(column)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    whole = _numbers(column.cast(pa.int64()))
    return whole / _SECONDS[column.type.unit]


def _texts(column: Any) -> Array:
    pa = arrow()
    if pa.types.is_floating(column.type):
        shown = ["" if value is None or value != value else f"{value:g}" for value in column.to_pylist()]
    else:
        shown = ["" if value is None else str(value) for value in column.to_pylist()]
    texts = np.empty(len(shown), object)
    texts[:] = shown
    return texts
