"""Reads parquet, Arrow and CSV files in chunks of bounded size, as numbers."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import DataError

Array = np.ndarray[Any, Any]

LEAST_BLOCK = 1 << 20  # bytes of a CSV file that are parsed at once, at least: the first line must fit

KINDS = {
    ".parquet": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".csv": "csv",
}


@dataclass(frozen=True)
class BadRow:
    """A row that was left out: its file, its line and the reason."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file; `lines` are their lines in a text file, or their numbers from 1."""

    file: str
    values: Array  # (rows, columns) float32
    target: Array | None  # numbers, or objects
    lines: Array
    bad: tuple[BadRow, ...] = ()


def kind_of(path: Path) -> str:
    if path.suffix.lower() not in KINDS:
        raise DataError(
            f"{path} must end in one of {', '.join(KINDS)}, got {path.suffix or 'no ending'}; convert it first"
        )
    return KINDS[path.suffix.lower()]


def name_of(source: Any) -> str:
    """Return what to call a file or a data set in a message."""
    return str(source) if isinstance(source, Path) else "the data set"


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.dataset
    except ImportError:
        raise DataError("reading files needs pyarrow; install weft[data]") from None
    return pyarrow


def columns_of(path: Any) -> list[str]:
    """Return the names of the columns of a file or a data set, as pyarrow reads them; each must be there once."""
    pa = _arrow()
    with _readable(pa, path):
        if not isinstance(path, Path):
            found = list(path.schema.names)
        elif kind_of(path) == "csv":
            found = _columns_of_csv(pa, path)
        else:
            found = list(pa.dataset.dataset(path, format=kind_of(path)).schema.names)
    check_unique(found, f"the columns of {name_of(path)}")
    return found


def _columns_of_csv(pa: Any, path: Path) -> list[str]:
    options = pa.csv.ReadOptions(use_threads=False, block_size=LEAST_BLOCK)
    try:
        with pa.csv.open_csv(path, read_options=options) as reader:
            return list(reader.schema.names)
    except pa.ArrowInvalid as error:
        if "columns, got" not in str(error):
            raise
    # A row of too few or too many cells: the reader of the rows tells of it; here only the first line counts.
    with (
        path.open("rb") as file,
        pa.csv.open_csv(io.BytesIO(file.readline()), read_options=options) as reader,
    ):
        return list(reader.schema.names)


def check_unique(names: Sequence[str], what: str) -> None:
    """Raise an error that names the first column that appears twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{what} must have different names, got {name!r} twice; rename one of them")
        seen.add(name)


def listed(names: Sequence[str]) -> str:
    """Return the names of columns for a message, in quotes where spaces or commas would hide where a name ends."""
    return ", ".join(name if re.fullmatch(r"[^\s,'\"]+", name) else repr(name) for name in names)


@contextmanager
def _readable(pa: Any, path: Any) -> Iterator[None]:
    """Raise the errors of pyarrow as errors about the file."""
    if not isinstance(path, Path):
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"a data set must be readable, got: {_first(error)}") from None
        return
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(
            f"{path} must be text in UTF-8, got another encoding; convert it, with `iconv -t UTF-8` say"
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} must be a readable {kind_of(path)} file, got: {_first(error)}") from None


def read_chunks(path: Any, names: list[str], target: str | None, rows: int) -> Iterator[Chunk]:
    """Yield the rows of a file or of a pyarrow data set, `rows` at a time."""
    found = columns_of(path)
    wanted = [*names, *([target] if target else [])]
    absent = [name for name in wanted if name not in found]
    if absent:
        raise DataError(
            f"{name_of(path)} must have the columns of the first file, got none named {listed(absent)}"
        )
    pa = _arrow()
    reader = _csv_batches if isinstance(path, Path) and kind_of(path) == "csv" else _batches
    with _readable(pa, path):
        yield from reader(pa, path, names, target, rows)


def _batches(pa: Any, path: Any, names: list[str], target: str | None, rows: int) -> Iterator[Chunk]:
    """Yield the rows of a parquet or Arrow file, or of a data set; one batch is read ahead."""
    dataset = pa.dataset.dataset(path, format=kind_of(path)) if isinstance(path, Path) else path
    path = name_of(path)
    columns = [*names, *([target] if target else [])]
    line = 1
    for batch in dataset.to_batches(
        columns=columns, batch_size=rows, batch_readahead=1, fragment_readahead=1
    ):
        if not batch.num_rows:
            continue
        values = np.empty((batch.num_rows, len(names)), np.float32)
        for place, name in enumerate(names):
            values[:, place] = _numbers(pa, batch.column(name), path, name)
        lines = np.arange(line, line + batch.num_rows)
        line += batch.num_rows
        yield Chunk(str(path), values, _target(pa, batch.column(target)) if target else None, lines)


def _numbers(pa: Any, column: Any, path: Any, name: str) -> Array:
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{path} must hold numbers in {name}, got {kind}; encode it, or leave the column out")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    numbers: Array = column.to_numpy(zero_copy_only=False)
    return numbers


def _target(pa: Any, column: Any) -> Array:
    kind = column.type
    if (
        pa.types.is_decimal(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
    ):
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    return np.array(column.to_pylist(), object)


def _csv_batches(pa: Any, path: Path, names: list[str], target: str | None, rows: int) -> Iterator[Chunk]:
    """Yield the rows of a CSV file; cells are parsed here, so that a bad cell costs its row and not the file."""
    broken: list[BadRow] = []

    def refuse(row: Any) -> str:
        line = -1 if row.number is None else row.number
        why = f"{row.actual_columns} cells where {row.expected_columns} are"
        broken.append(BadRow(str(path), line, why))
        return "skip"

    wanted = [*names, *([target] if target else [])]
    reader = pa.csv.open_csv(
        path,
        # Line numbers are right with one thread only.
        read_options=pa.csv.ReadOptions(
            use_threads=False, block_size=max(LEAST_BLOCK, 16 * rows * len(wanted))
        ),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=refuse),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=True
        ),
    )
    line, told = 2, 0
    for batch in reader:
        lines = _lines(line, batch.num_rows, [row.line for row in broken])
        line = int(lines[-1]) + 1 if batch.num_rows else line
        bad = {row.line: row for row in broken[told:]}
        told = len(broken)
        values = np.empty((batch.num_rows, len(names)), np.float32)
        for place, name in enumerate(names):
            values[:, place] = _parsed(
                pa, batch.column(batch.schema.get_field_index(name)), path, name, lines, bad
            )
        y = _csv_target(pa, batch.column(batch.schema.get_field_index(target))) if target else None
        good = ~np.isin(lines, list(bad))
        yield Chunk(str(path), values[good], None if y is None else y[good], lines[good], tuple(bad.values()))


def _lines(first: int, count: int, skipped: list[int]) -> Array:
    """Return the line numbers of `count` rows from `first` on, without skipped lines."""
    lines = np.arange(first, first + count + len(skipped))
    return lines[~np.isin(lines, skipped)][:count]


def _parsed(pa: Any, cells: Any, path: Path, name: str, lines: Array, bad: dict[int, BadRow]) -> Array:
    """Return cells as numbers, NaN where empty; other text marks its row as bad."""
    try:
        return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowInvalid:
        numbers = np.full(len(cells), np.nan)
        for row, text in enumerate(cells.to_pylist()):
            try:
                numbers[row] = np.nan if text is None or not text.strip() else float(text)
            except ValueError:
                place = int(lines[row])
                bad.setdefault(place, BadRow(str(path), place, f"{name} must be a number, got {text!r}"))
        return numbers


def _csv_target(pa: Any, cells: Any) -> Array:
    try:
        return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowInvalid:
        return np.array(cells.to_pylist(), object)


def _first(error: Exception) -> str:
    return str(error).splitlines()[0]
