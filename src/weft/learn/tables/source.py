"""Sources of tables that `fit` takes in place of an array: a path, a glob, a pyarrow dataset, a stored table."""

from __future__ import annotations

import warnings
from glob import glob
from pathlib import Path
from typing import Any

from weft.errors import DataError
from weft.files import cache_folder
from weft.learn.tables.convert import convert
from weft.learn.tables.form import StoredTable, is_stored, open_stored
from weft.learn.tables.read import KINDS
from weft.learn.tables.report import fingerprint
from weft.learn.tables.sizes import COLUMN_BYTES, most_columns, parse_memory
from weft.learn.tables.svmlight import LABEL, SUFFIXES, is_svmlight
from weft.text import round_up_size

NAMES = (*KINDS, *SUFFIXES)


def is_source(X: Any) -> bool:
    """Return whether X names data instead of holding it."""
    return isinstance(X, str | Path | StoredTable) or type(X).__module__.startswith("pyarrow._dataset")


def files_of(X: Any) -> list[Path]:
    """Return the files of a path, a folder, a glob or a dataset, in order."""
    if hasattr(X, "files"):
        return [Path(name) for name in X.files]
    path = Path(X)
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.suffix.lower() in NAMES)
    else:
        found = [path] if path.exists() else sorted(map(Path, glob(str(X), recursive=True)))  # noqa: PTH207
    if not found:
        raise DataError(f"{X} must name files that end in {', '.join(NAMES)}, got none")
    return found


def open_source(X: Any, target: Any, memory: str | int | None = None) -> StoredTable:
    """Return the stored table of a source; files are converted once, into Weft's cache."""
    if isinstance(X, StoredTable):
        return X
    if isinstance(X, str | Path) and is_stored(Path(X)):
        return _bounded(open_stored(Path(X)), memory)
    files = files_of(X)
    if target is None and all(map(is_svmlight, files)):
        target = LABEL
    if not isinstance(target, str):
        got = "none" if target is None else type(target).__name__
        raise DataError(
            f"y must be the name of the target column where X is a path, got {got}; write y='label' (--target label)"
        )
    folder = cache_folder("tables") / fingerprint(files, target)
    if is_stored(folder):
        return _bounded(open_stored(folder), memory)
    table, report = convert(files, folder, target=target, memory=memory)
    if not report.clean:
        told = "; ".join(report.lines()[:3])
        warnings.warn(
            f"{report.bad_rows} rows and {len(report.bad_files)} files were left out: {told}", stacklevel=4
        )
    return table


def _bounded(table: StoredTable, memory: str | int | None) -> StoredTable:
    """Return a table whose width, which a stranger may have written, fits the bound on memory."""
    most = most_columns(parse_memory(memory))
    if table.description.width > most:
        raise DataError(
            f"{table.folder} must have at most {most} columns with this memory, got {table.description.width}; "
            f"use memory='{round_up_size(COLUMN_BYTES * table.description.width)}'"
        )
    return table
