"""The shape of a table at a glance: names and kinds of its columns from its first rows, to choose a target from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.auto.frames import read_table
from weft.auto.reading.files import HEAD_BYTES, arrow, csv_options
from weft.errors import DataError

FIRST_ROWS = 1000
SHOWN_KINDS = {"other": "text"}  # what cannot be used is left out once the run begins
_FIRST_BYTES = 1 << 20  # of a CSV file: its first block


@dataclass(frozen=True)
class ColumnShape:
    """A column as its first rows show it: number, date or text, with a value that is there."""

    name: str
    kind: str
    example: str


@dataclass(frozen=True)
class TableShape:
    """The columns of a table, and how many rows it has where the file says so."""

    columns: tuple[ColumnShape, ...]
    rows: int | None


def shape_of(source: Path | bytes, suffix: str) -> TableShape:
    """Return the shape of a file, or of its bytes; `suffix` tells of what kind it is. DataError if it is no table."""
    pa = arrow()
    try:
        first, rows = _first_rows(pa, source, suffix.lower())
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(
            f"a table must be a readable {suffix[1:]} file, got: {reason}; mend the file"
        ) from None
    found = read_table(first).columns
    columns = tuple(
        ColumnShape(name, SHOWN_KINDS.get(column.kind, column.kind), _example(first.column(place)))
        for place, (name, column) in enumerate(found.items())
    )
    if not columns:
        raise DataError("a table must have columns, got none; name another file")
    return TableShape(columns, rows)


def _first_rows(pa: Any, given: Path | bytes, suffix: str) -> tuple[Any, int | None]:
    """Return the first rows as an Arrow table, and the number of all rows if it is known."""
    source = pa.BufferReader(given) if isinstance(given, bytes) else str(given)
    if suffix in (".csv", ".tsv"):
        options = csv_options(pa, _head(given), block_size=_FIRST_BYTES, use_threads=False)
        with pa.csv.open_csv(source, **options) as reader:
            first = pa.Table.from_batches([reader.read_next_batch()])
        return first.slice(0, FIRST_ROWS), None
    if suffix in (".parquet", ".pq"):
        with pa.parquet.ParquetFile(source) as file:
            batches = list(_some(file.iter_batches(FIRST_ROWS)))
            return pa.Table.from_batches(batches, file.schema_arrow), file.metadata.num_rows

    whole = pa.feather.read_table(source)
    return whole.slice(0, FIRST_ROWS), whole.num_rows


def _head(given: Path | bytes) -> bytes:
    if isinstance(given, bytes):
        return given[:HEAD_BYTES]
    with given.open("rb") as file:
        return file.read(HEAD_BYTES)


def _some(batches: Any) -> Any:
    """Yield the first batch, if there is one."""
    for batch in batches:
        yield batch
        return


def _example(column: Any) -> str:
    known = column.drop_null()
    return str(known[0])[:60] if len(known) else ""
