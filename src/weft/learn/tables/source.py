"""Sources of tables that `fit` takes in place of an array: paths, globs, S3, pyarrow data sets, stored tables."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any

from weft.errors import DataError
from weft.files import cache_folder
from weft.learn.tables.convert import convert
from weft.learn.tables.form import StoredTable, is_stored, open_stored
from weft.learn.tables.read import KINDS, columns_of
from weft.learn.tables.report import fingerprint
from weft.learn.tables.s3_files import S3Table, is_in_s3
from weft.learn.tables.sizes import COLUMN_BYTES, most_columns, parse_memory
from weft.learn.tables.svmlight import LABEL, SUFFIXES, is_svmlight
from weft.text import plural, round_up_size

NAMES = (*KINDS, *SUFFIXES)


def is_source(X: Any) -> bool:
    """Return whether X names data instead of holding it."""
    return isinstance(X, str | Path | StoredTable) or _is_dataset(X)


def _is_dataset(X: Any) -> bool:
    return type(X).__module__.startswith("pyarrow._dataset") and hasattr(X, "get_fragments")


def is_plain(X: Any) -> bool:
    """Return whether a source is whole files of this machine, or of S3; else it is a data set that says what to read.

    A data set may have a filter, columns from the names of folders, or files that are elsewhere.
    """
    if not _is_dataset(X):
        return True
    files = getattr(X, "files", ())
    if not files or "Local" not in type(X.filesystem).__name__ or getattr(X, "_scan_options", None):
        return False
    if not all(Path(name).suffix.lower() in KINDS for name in files):
        return False
    if X.format.default_extname == "csv":
        import pyarrow.dataset

        if X.format != pyarrow.dataset.CsvFileFormat():
            return False
    return set(X.schema.names) == set(columns_of(Path(files[0])))


@contextmanager
def files_here(X: Any) -> Iterator[list[Path]]:
    """Yield the files of a plain source; those of S3 are here for as long."""
    if is_in_s3(X):
        with S3Table(X, NAMES).fetched() as files:
            yield files
    else:
        yield files_of(X)


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
    if is_in_s3(X):
        place = S3Table(X, NAMES)
        target = _target_name(target, [Path(one.key) for one in place.objects])
        folder = cache_folder("tables") / place.fingerprint(target)
        if is_stored(folder):
            return _bounded(open_stored(folder), memory)
        with place.fetched() as files:
            return _converted(files, folder, target, memory)
    if not is_plain(X):
        folder = Path(tempfile.mkdtemp(prefix="weft-table-"))
        table = _converted([X], folder, _target_name(target, []), memory)
        weakref.finalize(table, shutil.rmtree, folder, ignore_errors=True)
        return table
    files = files_of(X)
    target = _target_name(target, files)
    folder = cache_folder("tables") / fingerprint(files, target)
    return (
        _bounded(open_stored(folder), memory)
        if is_stored(folder)
        else _converted(files, folder, target, memory)
    )


def _target_name(target: Any, files: list[Path]) -> str:
    if target is None and files and all(map(is_svmlight, files)):
        return LABEL
    if not isinstance(target, str):
        got = "none" if target is None else type(target).__name__
        raise DataError(
            f"y must be the name of the target column where X is a path, got {got}; write y='label' (--target label)"
        )
    return target


def _converted(sources: list[Any], folder: Path, target: str, memory: str | int | None) -> StoredTable:
    table, report = convert(sources, folder, target=target, memory=memory)
    if not report.clean:
        told = "; ".join(report.lines()[:3])
        warnings.warn(
            f"{plural(report.bad_rows, 'row')} and {plural(len(report.bad_files), 'file')} were left out: {told}",
            stacklevel=5,
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
