"""Tables of any kind as raw columns: float64 with NaN for numbers and dates, and text with "" for what is missing.

Files (.csv, .parquet, .arrow, .feather), pandas and polars frames, Arrow tables and mappings of arrays are read. Dates
are seconds since 1970 in UTC. These raw columns are also the inputs of an exported model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import DataError
from weft.text import suggestion

Array = np.ndarray[Any, Any]

FILES = (".csv", ".parquet", ".pq", ".arrow", ".feather", ".ipc")
_SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


@dataclass(frozen=True)
class RawColumn:
    """One column: `kind` is "number", "date" (both float64) or "text" (objects that are str)."""

    name: str
    kind: str
    values: Array

    @property
    def missing(self) -> Array:
        found: Array = self.values == "" if self.kind == "text" else np.isnan(self.values)
        return found

    def take(self, rows: Array) -> RawColumn:
        return RawColumn(self.name, self.kind, self.values[rows])


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


def read_table(source: Any, kinds: Mapping[str, str] | None = None) -> RawTable:
    """Return a file or a frame as raw columns; `kinds` names those to read, and what each must be."""
    table = _arrow_table(source)
    names = table.column_names
    if kinds is None:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"columns must have different names, got {twice[0]!r} twice; rename one")
        return RawTable({name: _found_column(name, table.column(name)) for name in names})
    for name in kinds:
        if name not in names:
            raise DataError(
                f"rows must have the column {name!r} of the fit, got none; {suggestion(name, names)}"
            )
    return RawTable({name: _wanted_column(name, table.column(name), kind) for name, kind in kinds.items()})


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.feather
        import pyarrow.parquet
    except ImportError:
        raise DataError("tables must be read by pyarrow, got none installed; install weft[auto]") from None
    return pyarrow


def _arrow_table(source: Any) -> Any:
    pa = _arrow()
    if isinstance(source, (str, PathLike)):
        return _file(pa, Path(source))
    if isinstance(source, pa.Table):
        return source
    try:
        if isinstance(source, Mapping):
            return pa.table({str(name): _listed(pa, values) for name, values in source.items()})
        if hasattr(source, "iloc") and hasattr(source, "columns"):  # pandas
            named = source.rename(columns=str)
            return pa.Table.from_pandas(named, preserve_index=False)
        if hasattr(source, "__arrow_c_stream__"):  # polars, DuckDB and others
            return pa.table(source)
    except (pa.ArrowException, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"each column must hold one kind of values, got: {reason}; convert it first"
        ) from None
    raise DataError(
        f"a table must be a path, a frame of pandas or polars, an Arrow table or a mapping, got "
        f"{type(source).__name__}; pass one of these"
    )


def _listed(pa: Any, values: Any) -> Any:
    array = np.asarray(values)
    return pa.array(array.tolist() if array.dtype.kind in "OUS" else array)


def _file(pa: Any, path: Path) -> Any:
    suffix = path.suffix.lower()
    if suffix not in FILES:
        raise DataError(
            f"{path} must end in one of {', '.join(FILES)}, got {path.suffix or 'nothing'!r}; convert it first"
        )
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing there"
        raise DataError(f"{path} must be a file, got {got}; check the path")
    try:
        if suffix == ".csv":
            options = pa.csv.ConvertOptions(strings_can_be_null=True)
            return pa.csv.read_csv(path, convert_options=options)
        if suffix in (".parquet", ".pq"):
            return pa.parquet.read_table(path)
        return pa.feather.read_table(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} must be a readable {suffix[1:]} file, got: {reason}; mend the file"
        ) from None


def _found_column(name: str, column: Any) -> RawColumn:
    pa = _arrow()
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return RawColumn(name, "number", _numbers(column))
    if pa.types.is_decimal(kind):
        return RawColumn(name, "number", _numbers(column.cast(pa.float64())))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return RawColumn(name, "date", _seconds(column))
    if pa.types.is_null(kind):
        return RawColumn(name, "number", np.full(len(column), np.nan))
    if pa.types.is_dictionary(kind):
        return _found_column(name, column.cast(kind.value_type))
    texts = _texts(name, column)
    parsed = _dates_in(pa, column) if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None
    return RawColumn(name, "text", texts) if parsed is None else RawColumn(name, "date", parsed)


def _wanted_column(name: str, column: Any, kind: str) -> RawColumn:
    pa = _arrow()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind == "text":
        return RawColumn(name, kind, _texts(name, column))
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    try:
        if kind == "number":
            return RawColumn(name, kind, _numbers(column.cast(pa.float64()) if text else column))
        parsed = _dates_in(pa, column) if text else _seconds(column)
    except pa.ArrowException:
        parsed = None
    if parsed is None:
        raise DataError(f"column {name!r} must hold {kind}s, as in the fit, got {column.type}; convert it")
    return RawColumn(name, kind, parsed)


def _numbers(column: Any) -> Array:
    pa = _arrow()
    array: Array = column.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def _seconds(column: Any) -> Array:
    """Return dates as seconds since 1970, UTC; numbers are seconds already."""
    pa = _arrow()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _numbers(column)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    whole = _numbers(column.cast(pa.int64()))
    return whole / _SECONDS[column.type.unit]


def _texts(name: str, column: Any) -> Array:
    pa = _arrow()
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise DataError(f"column {name!r} must hold numbers, dates or text, got {column.type}; drop it")
    if pa.types.is_floating(column.type):
        shown = ["" if value is None or value != value else f"{value:g}" for value in column.to_pylist()]
    else:
        shown = ["" if value is None else str(value) for value in column.to_pylist()]
    texts = np.empty(len(shown), object)
    texts[:] = shown
    return texts


def _dates_in(pa: Any, column: Any) -> Array | None:
    """Return text that is dates in ISO 8601 as seconds; None where some value is not one."""
    some = column.drop_null()
    if (
        not len(some)
        or not pa.compute.all(
            pa.compute.match_substring_regex(some.slice(0, 1000), r"^\d{4}-\d{2}-\d{2}([T ]|$)")
        ).as_py()
    ):
        return None
    try:
        return _seconds(column.cast(pa.timestamp("us")))
    except pa.ArrowException:
        return None
