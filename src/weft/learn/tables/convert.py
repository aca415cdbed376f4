"""Converts files to a stored table in chunks: rows that cannot be read are reported by file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import DataError
from weft.learn.tables.form import RowsFile, StoredTable, TableDescription, describe, open_stored, storing
from weft.learn.tables.read import BadRow, Chunk, check_unique, columns_of, listed, name_of, read_chunks
from weft.learn.tables.report import ConversionReport, fingerprint
from weft.learn.tables.sizes import MemoryShares, share_out
from weft.learn.tables.svmlight import LABEL, convert_svmlight, is_svmlight

Array = np.ndarray[Any, Any]


def convert(
    sources: list[Any],
    folder: Path,
    *,
    target: str | None,
    memory: str | int | None = None,
    columns: list[str] | None = None,
) -> tuple[StoredTable, ConversionReport]:
    """Write the stored table of files, or of pyarrow data sets, to `folder`.

    Files that cannot be read or lack columns are left out.
    An error leaves `folder` as it was.
    """
    if any(map(is_svmlight, sources)):
        return _sparse(sources, folder, target, memory, columns)
    names = _names(sources, target, columns)
    shares = share_out(memory, len(names) + 1)
    report = ConversionReport(str(folder), columns=len(names))
    with storing(folder) as draft:
        _write_dense(sources, draft, target, names, shares, report)
    return open_stored(folder), report


def _write_dense(
    sources: list[Any],
    folder: Path,
    target: str | None,
    names: list[str],
    shares: MemoryShares,
    report: ConversionReport,
) -> None:
    rows = RowsFile(folder / "X.npy", len(names), np.float32)
    targets: list[Array] = []
    missing = 0
    for source in sources:
        before = rows.rows
        try:
            for chunk in read_chunks(source, names, target, shares.chunk_rows):
                kept, gone = _checked(chunk, names)
                for row in (*chunk.bad, *gone):
                    report.add(row)
                rows.append(kept.values)
                missing += int(np.isnan(kept.values).sum())
                if kept.target is not None:
                    targets.append(kept.target)
        except DataError as error:
            kept_rows = rows.rows - before
            report.bad_files.append(
                f"{error}" + (f" (its first {kept_rows} rows are kept)" if kept_rows else "")
            )
    rows.close()
    report.check_rows(rows.rows)
    classes = _write_target(folder, targets) if target is not None else None
    report.rows, report.bytes = rows.rows, (folder / "X.npy").stat().st_size
    description = TableDescription(
        rows.rows, tuple(names), target, classes, missing, fingerprint(sources, target)
    )
    describe(folder, description)


def _sparse(
    sources: list[Any],
    folder: Path,
    target: str | None,
    memory: str | int | None,
    columns: list[str] | None,
) -> tuple[StoredTable, ConversionReport]:
    others = [source for source in sources if not is_svmlight(source)]
    if others:
        raise DataError(f"files must all be svmlight or none of them, got {others[0]} among them")
    if columns is not None or target not in (None, LABEL):
        raise DataError(
            f"an svmlight file has no names: its target is {LABEL!r}, got {target or columns}; leave them out"
        )
    return convert_svmlight(sources, folder, memory)


def _names(sources: list[Any], target: str | None, columns: list[str] | None) -> list[str]:
    """Return the feature columns: `columns`, or those of the first file that can be read."""
    check_unique(columns or [], "columns")
    if target is not None and target in (columns or []):
        raise DataError(f"columns must be features, got the target {target!r} among them; leave it out")
    errors = []
    for source in sources:
        try:
            found = columns_of(source)
        except DataError as error:
            errors.append(str(error))
            continue
        if target is not None and target not in found:
            raise DataError(
                f"the target must be a column of {name_of(source)}, got {target!r}; it has {listed(found)}"
            )
        unknown = [name for name in columns or [] if name not in found]
        if unknown:
            raise DataError(
                f"columns must be those of {name_of(source)}, got {unknown}; it has {listed(found)}"
            )
        names = columns or [name for name in found if name != target]
        if not names:
            raise DataError(f"{name_of(source)} must have a column beside the target, got {target!r} alone")
        return names
    raise DataError(f"one file at least must be readable, got none: {'; '.join(errors[:3])}")


def _checked(chunk: Chunk, names: list[str]) -> tuple[Chunk, list[BadRow]]:
    """Return the chunk without rows of infinite values or missing targets, and those rows."""
    infinite = np.isinf(chunk.values)
    bad = infinite.any(axis=1)
    gone = []
    for row in np.flatnonzero(bad):
        column = int(infinite[row].argmax())
        value = chunk.values[row, column]
        gone.append(BadRow(chunk.file, int(chunk.lines[row]), f"{names[column]} is {value}"))
    if chunk.target is not None:
        empty = _absent(chunk.target) & ~bad
        gone += [BadRow(chunk.file, int(line), "the target is missing") for line in chunk.lines[empty]]
        bad = bad | empty
    if not bad.any():
        return chunk, gone
    keep = ~bad
    target = None if chunk.target is None else chunk.target[keep]
    return Chunk(chunk.file, chunk.values[keep], target, chunk.lines[keep], chunk.bad), gone


def _absent(target: Array) -> Array:
    if target.dtype == object:
        return np.array([value is None or value != value for value in target], bool)
    return ~np.isfinite(target)


def _write_target(folder: Path, parts: list[Array]) -> tuple[Any, ...] | None:
    """Write the target as numbers, or as class codes; return the names of the classes."""
    if all(part.dtype != object for part in parts):
        np.save(folder / "y.npy", np.concatenate(parts))
        return None
    classes, codes = np.unique(np.concatenate([_as_text(part) for part in parts]), return_inverse=True)
    np.save(folder / "y.npy", codes.astype(np.int32))
    return tuple(classes.tolist())


def _as_text(part: Array) -> Array:
    """Return the names of classes; those of a chunk that holds numbers only as a text file has them: 1, not 1.0."""
    if part.dtype == object:
        return part.astype(str)
    return np.array([f"{value:.0f}" if value == np.floor(value) else repr(float(value)) for value in part])
