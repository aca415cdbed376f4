"""The stored form of a table: a folder of .npy files that are mapped into memory, with a description.

    table.json     rows, column names, classes of the target, where it came from
    X.npy          float32, row by row; of a sparse table instead: indptr.npy, indices.npy, data.npy, as in CSR
    y.npy          the target: numbers, or codes of classes

Any program that reads .npy can read it. A folder may come from somebody else, or from a disk that lost some of it: its
description and the ranges of its indices are checked when it is opened, because compiled code that runs over them
checks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy import sparse

from weft.errors import DataError
from weft.files import filling, write_whole
from weft.learn.tables.mapped import Window

Array = np.ndarray[Any, Any]

DESCRIPTION = "table.json"
AXES = {1: "one axis", 2: "two axes"}
ARRAYS = ("X.npy", "indptr.npy", "indices.npy", "data.npy", "y.npy")
CHECKED = 1 << 22  # indices that are checked at once


@dataclass(frozen=True)
class TableDescription:
    """The description of a stored table, kept in table.json."""

    rows: int
    columns: tuple[str, ...]
    target: str | None
    classes: tuple[Any, ...] | None  # names of the classes of a target that is not a number
    missing: int  # number of missing values
    source: str  # fingerprint of the files the table was made from
    width: int = 0  # columns of a sparse table, which have no names

    def __post_init__(self) -> None:
        if min(self.rows, self.missing, self.width) < 0:
            raise ValueError("rows, missing and width must be at least 0")

    @property
    def sparse(self) -> bool:
        return not self.columns

    @property
    def count(self) -> int:
        """The number of columns."""
        return len(self.columns) or self.width


@dataclass(frozen=True)
class StoredTable:
    """A table in a folder."""

    folder: Path
    description: TableDescription

    def features(self) -> Any:
        """Return the rows, or a CSR matrix, mapped copy-on-write: changes do not reach the file."""
        if not self.description.sparse:
            return load_array(self.folder, "X.npy", np.float32, 2)
        data = load_array(self.folder, "data.npy", np.float32)
        indices = load_array(self.folder, "indices.npy", np.int32)
        indptr = np.asarray(load_array(self.folder, "indptr.npy", np.int64))
        if len(indptr) != self.description.rows + 1:
            raise _damaged(self.folder, f"{self.description.rows + 1} row starts, got {len(indptr)}")
        if indptr.min() >= 0 and indptr.max() <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)
        matrix = sparse.csr_matrix((self.description.rows, self.description.width), dtype=np.float32)
        # Set one by one: SciPy's constructor would copy the arrays to give both indices one type.
        matrix.data, matrix.indices, matrix.indptr = np.asarray(data), np.asarray(indices), indptr
        matrix.has_canonical_format = True
        return matrix

    def target(self) -> Array:
        if self.description.target is None:
            raise DataError(f"{self.folder} must hold a target, got none; convert it again with --target")
        classes = self.description.classes
        y = np.array(load_array(self.folder, "y.npy", np.float64 if classes is None else np.int32))
        return y if classes is None else np.array(classes)[y.astype(np.intp)]


def is_stored(path: Path) -> bool:
    return (path / DESCRIPTION).is_file()


def open_stored(folder: Path) -> StoredTable:
    """Open a folder, and check that its files are what its description says."""
    try:
        description = msgspec.json.decode((folder / DESCRIPTION).read_bytes(), type=TableDescription)
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, f"a description that can be read, got {DESCRIPTION}: {error}") from None
    table = StoredTable(folder, description)
    _check_features(table)
    if description.target is not None:
        _check_target(table)
    return table


def load_array(folder: Path, name: str, kind: Any, axes: int = 1) -> Array:
    """Map an array of a stored table copy-on-write; its type and its number of axes must be these."""
    try:
        array: Array = np.lib.format.open_memmap(folder / name, mode="c")
    except (OSError, ValueError, EOFError, OverflowError, MemoryError) as error:
        raise _damaged(folder, f"a whole {name}, got: {str(error).splitlines()[0]}") from None
    if array.dtype != np.dtype(kind) or array.ndim != axes:
        raise _damaged(
            folder,
            f"{np.dtype(kind)} in {AXES[axes]} in {name}, got {array.dtype} of the shape {array.shape}",
        )
    if not array.flags.c_contiguous:
        raise _damaged(folder, f"{name} row by row, got it column by column")
    return array


def _check_features(table: StoredTable) -> None:
    described, features = table.description, table.features()
    shape, expected = features.shape, (described.rows, described.count)
    if shape != expected or not described.count:
        raise _damaged(table.folder, f"a table of the shape {expected}, got {shape}")
    if described.sparse:
        _check_sparse(table.folder, features)


def _check_sparse(folder: Path, matrix: Any) -> None:
    """Check that rows begin and end inside the values, and that the columns of each row ascend within the width."""
    starts, stored = matrix.indptr, len(matrix.data)
    if starts[0] != 0 or starts[-1] != stored or len(matrix.indices) != stored or (np.diff(starts) < 0).any():
        raise _damaged(folder, f"ascending row starts from 0 to {stored} in indptr.npy, got others")
    window = Window(matrix.indices, CHECKED * matrix.indices.itemsize)
    for first in range(0, stored, CHECKED):
        part = matrix.indices[first : first + CHECKED + 1]  # and the first of the next part
        if part.min() < 0 or part.max() >= matrix.shape[1]:
            raise _damaged(folder, f"columns from 0 to {matrix.shape[1] - 1} in indices.npy, got others")
        falls = np.flatnonzero(part[1:] <= part[:-1]) + first + 1
        if len(falls) and (starts[np.searchsorted(starts, falls)] != falls).any():
            raise _damaged(folder, "ascending columns in each row of indices.npy, got others")
        window.let_go()


def _check_target(table: StoredTable) -> None:
    classes = table.description.classes
    y = load_array(table.folder, "y.npy", np.float64 if classes is None else np.int32)
    if len(y) != table.description.rows:
        raise _damaged(table.folder, f"{table.description.rows} values in y.npy, got {len(y)}")
    if classes is not None and len(y) and not (y.min() >= 0 and y.max() < len(classes)):
        raise _damaged(table.folder, f"codes below {len(classes)} in y.npy, got others")


def _damaged(folder: Path, must: str) -> DataError:
    return DataError(f"{folder} must hold {must}; convert it again")


@contextmanager
def storing(folder: Path) -> Iterator[Path]:
    """Yield a draft folder for a table, which takes the place of the table in `folder` once it is whole.

    Files of `folder` that are no part of a stored table stay. A failure leaves `folder` as it was.
    """
    foreign = [] if is_stored(folder) else [name for name in ARRAYS if (folder / name).exists()]
    if foreign:
        raise DataError(
            f"{folder} must hold a stored table or none of {', '.join(ARRAYS)}, got {foreign[0]} without a "
            f"{DESCRIPTION}; choose another folder"
        )
    try:
        with filling(folder, DESCRIPTION, ARRAYS) as draft:
            yield draft
    except OSError as error:
        raise DataError(
            f"{folder} must be a folder that can be written, got {error.strerror or error}; choose another"
        ) from error


def describe(folder: Path, description: TableDescription) -> None:
    """Write the description of a table."""
    write_whole(folder / DESCRIPTION, json.dumps(asdict(description), indent=1))


class RowsFile:
    """A .npy file that grows by chunks of rows."""

    def __init__(self, path: Path, columns: int | None, dtype: Any):
        self._shape = () if columns is None else (columns,)
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb")
        self.rows = 0
        self._header()

    def _header(self) -> None:
        # NumPy leaves room in the header for the number of rows to grow.
        np.lib.format.write_array_header_1_0(
            self._file,
            {"descr": self._dtype.str, "fortran_order": False, "shape": (self.rows, *self._shape)},
        )

    def append(self, chunk: Array) -> None:
        self._file.write(np.ascontiguousarray(chunk, self._dtype).data)
        self.rows += len(chunk)

    def close(self) -> None:
        self._file.seek(0)
        self._header()
        self._file.close()
