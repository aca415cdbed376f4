"""Converts svmlight files (`label column:value ...`, one row a line) to a sparse stored table, in chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from weft.errors import DataError
from weft.learn.tables.form import RowsFile, StoredTable, TableDescription, describe, open_stored, storing
from weft.learn.tables.read import BadRow
from weft.learn.tables.report import ConversionReport, fingerprint
from weft.learn.tables.sizes import format_memory, most_columns, parse_memory

Array = np.ndarray[Any, Any]

SUFFIXES = (".svm", ".svmlight", ".libsvm")
LABEL = "label"
LEAST = 10**6  # bytes of memory
GROWTH = 6  # bytes of memory that a byte of text takes while it is parsed, at most
SHOWN = 40  # characters of a bad word in a message
DIGITS = 18  # of the longest column number that is read as a number


@dataclass(frozen=True)
class SparseChunk:
    """Some rows in CSR form, with columns numbered as in the file."""

    counts: Array  # values of each row
    indices: Array
    data: Array
    target: Array
    bad: tuple[BadRow, ...] = ()


def is_svmlight(source: Any) -> bool:
    return isinstance(source, Path) and source.suffix.lower() in SUFFIXES


def convert_svmlight(
    sources: list[Path], folder: Path, memory: str | int | None
) -> tuple[StoredTable, ConversionReport]:
    """Write the stored table of files to `folder`; columns are numbered from 1 unless a column 0 appears."""
    size = parse_memory(memory)
    if size < LEAST:
        raise DataError(
            f"memory must be at least {format_memory(LEAST)}, got {format_memory(size)}; use memory='1MB'"
        )
    report = ConversionReport(str(folder))
    with storing(folder) as draft:
        _write_sparse(sources, draft, size, report)
    return open_stored(folder), report


def _write_sparse(sources: list[Path], folder: Path, size: int, report: ConversionReport) -> None:
    files = {name: RowsFile(folder / f"{name}.npy", None, kind) for name, kind in _KINDS.items()}
    files["indptr"].append(np.zeros(1))
    first, last, stored = 1 << 62, -1, 0
    for source in sources:
        before = files["y"].rows
        try:
            for part in read_parts(source, size // GROWTH, most_columns(size)):
                for row in part.bad:
                    report.add(row)
                files["indptr"].append(stored + np.cumsum(part.counts))
                files["indices"].append(part.indices)
                files["data"].append(part.data)
                files["y"].append(part.target)
                stored += len(part.indices)
                if len(part.indices):
                    first, last = min(first, int(part.indices.min())), max(last, int(part.indices.max()))
        except DataError as error:
            kept = files["y"].rows - before
            report.bad_files.append(f"{error}" + (f" (its first {kept} rows are kept)" if kept else ""))
    for file in files.values():
        file.close()
    rows = files["y"].rows
    report.check_rows(rows)
    if last < 0:
        raise DataError("the files must have a value in some column, got labels alone")
    if first >= 1 and last >= 1:
        _count_from_zero(folder / "indices.npy")
        last -= 1
    report.rows, report.columns = rows, last + 1
    report.bytes = sum((folder / f"{name}.npy").stat().st_size for name in _KINDS)
    description = TableDescription(rows, (), LABEL, None, 0, fingerprint(sources, LABEL), width=last + 1)
    describe(folder, description)


_KINDS = {"indptr": np.int64, "indices": np.int32, "data": np.float32, "y": np.float64}


def _count_from_zero(path: Path) -> None:
    indices = np.load(path, mmap_mode="r+")
    for start in range(0, len(indices), 1 << 22):
        indices[start : start + (1 << 22)] -= 1
    indices.flush()


def read_parts(path: Path, size: int, last: int) -> Iterator[SparseChunk]:
    """Yield the rows of a file whose columns are at most `last`, `size` bytes of text at a time."""
    try:
        for offset in range(0, path.stat().st_size, size):
            part = _at_once(path, offset, size, last) or _by_line(path, offset, size, last)
            if len(part.counts) or part.bad:
                yield part
    except OSError as error:
        raise DataError(f"{path} must be a readable file, got: {error.strerror or error}") from None


def _at_once(path: Path, offset: int, size: int, last: int) -> SparseChunk | None:
    """Parse a chunk fast; return None where a row of it is bad."""
    try:
        X, y = load_svmlight_file(str(path), dtype=np.float32, offset=offset, length=size, zero_based=True)
    except (ValueError, OverflowError):
        return None
    if not (np.isfinite(X.data).all() and np.isfinite(y).all()):
        return None
    # Numbers beyond 32 bits come back as negative ones.
    if len(X.indices) and not (X.indices.min() >= 0 and X.indices.max() <= last):
        return None
    return SparseChunk(np.diff(X.indptr), X.indices, X.data, y)


def _by_line(path: Path, offset: int, size: int, last: int) -> SparseChunk:
    """Parse a chunk line by line, to report its bad rows."""
    counts: list[int] = []
    indices: list[int] = []
    data: list[float] = []
    target: list[float] = []
    bad: list[BadRow] = []
    for number, text in _lines(path, offset, size):
        line = text.split("#", 1)[0].split()
        if not line:
            continue
        try:
            label, found = _parsed(line, last)
        except ValueError as error:
            bad.append(BadRow(str(path), number, str(error)))
            continue
        target.append(label)
        counts.append(len(found))
        indices += [column for column, _ in found]
        data += [value for _, value in found]
    return SparseChunk(
        np.array(counts, np.int64),
        np.array(indices, np.int32),
        np.array(data, np.float32),
        np.array(target),
        tuple(bad),
    )


def _lines(path: Path, offset: int, size: int) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin in a part of the file, with their numbers."""
    with path.open("rb") as file:
        place = 0
        for number, text in enumerate(file, 1):
            if place >= offset + size:
                return
            if place >= offset:
                yield number, text.decode(errors="replace")
            place += len(text)


def _parsed(words: list[str], last: int) -> tuple[float, list[tuple[int, float]]]:
    label = _number(words[0], "the label", np.float64)
    found: list[tuple[int, float]] = []
    for word in words[1:]:
        column, _, value = word.partition(":")
        if column == "qid":
            continue
        if not re.fullmatch(r"[0-9]+", column):
            raise ValueError(f"must look like column:value, got {word[:SHOWN]!r}")
        if len(column) > DIGITS or int(column) > last:
            raise ValueError(f"columns must be at most {last} with this memory, got {column[:SHOWN]}")
        if found and int(column) <= found[-1][0]:
            raise ValueError(f"columns must come in ascending order, got {column} after {found[-1][0]}")
        found.append((int(column), _number(value, f"column {column}", np.float32)))
    return label, found


def _number(text: str, what: str, kind: type[np.floating[Any]]) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{what} must be a number, got {text[:SHOWN]!r}") from None
    if not abs(number) <= float(np.finfo(kind).max):
        raise ValueError(f"{what} is {text[:SHOWN]}")
    return number
