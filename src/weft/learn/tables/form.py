"""The stored form of a table: a folder of .npy files that are mapped into memory, with a description.

    table.json     rows, column names, classes of the target, where it came from
    X.npy          float32, row by row; of a sparse table instead: indptr.npy, indices.npy, data.npy, as in CSR
    y.npy          the target: numbers, or codes of classes

Any program that reads .npy can read it.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from weft.errors import DataError
from weft.files import write_whole

Array = np.ndarray[Any, Any]

DESCRIPTION = "table.json"
NEIGHBOURHOOD = 1 << 21  # bytes that the operating system may read around a page


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
            return np.load(self.folder / "X.npy", mmap_mode="c")
        data, indices = (np.load(self.folder / f"{name}.npy", mmap_mode="c") for name in ("data", "indices"))
        indptr = np.load(self.folder / "indptr.npy")
        if indptr[-1] <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)
        matrix = sparse.csr_matrix((self.description.rows, self.description.width), dtype=np.float32)
        # Set one by one: SciPy's constructor would copy the arrays to give both indices one type.
        matrix.data, matrix.indices, matrix.indptr = np.asarray(data), np.asarray(indices), indptr
        matrix.has_canonical_format = True
        return matrix

    def target(self) -> Array:
        if self.description.target is None:
            raise DataError(f"{self.folder} must hold a target, got none; convert it again with --target")
        y: Array = np.load(self.folder / "y.npy")
        classes = self.description.classes
        return y if classes is None else np.array(classes)[y.astype(np.intp)]


def is_stored(path: Path) -> bool:
    return (path / DESCRIPTION).is_file()


def open_stored(folder: Path) -> StoredTable:
    """Open a folder, and check that its files have the shapes of its description."""
    data = json.loads((folder / DESCRIPTION).read_text())
    classes = data.pop("classes")
    description = TableDescription(
        **{**data, "columns": tuple(data["columns"])}, classes=None if classes is None else tuple(classes)
    )
    table = StoredTable(folder, description)
    features = table.features()
    shape, expected = features.shape, (description.rows, description.count)
    if description.sparse and len(features.indptr) != description.rows + 1:
        shape = (len(features.indptr) - 1, description.width)
    if shape != expected:
        raise DataError(f"{folder} must hold a table of the shape {expected}, got {shape}; convert it again")
    return table


def describe(folder: Path, description: TableDescription) -> StoredTable:
    """Write the description, after all other files: a folder without it is not a table."""
    write_whole(folder / DESCRIPTION, json.dumps(asdict(description), indent=1))
    return open_stored(folder)


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


class Mapped:
    """Rows on disk with the few methods of an array that fits use: shape, type, rows by slice or by number."""

    def __init__(self, array: Array, window_bytes: int):
        self.array = np.asarray(array)
        self.window = Window(array, window_bytes)
        self.shape, self.dtype, self.size, self.ndim = array.shape, array.dtype, array.size, 2

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, slice) and key.step is None:
            self.window.at(key.start or 0, len(self) if key.stop is None else key.stop)
            part: Array = self.array[key]
            return part
        return self._scattered(key)

    def _scattered(self, key: Any) -> Array:
        """Return a copy of scattered rows; pages read around them are released again and again."""
        rows = (
            np.array(range(*key.indices(len(self))), np.intp) if isinstance(key, slice) else np.asarray(key)
        )
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        part = np.empty((len(rows), self.shape[1]), self.dtype)
        step = max(1, self.window.size // NEIGHBOURHOOD)
        for start in range(0, len(rows), step):
            part[start : start + step] = self.array[rows[start : start + step]]
            self.window.let_go()
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.array, dtype)


class Window:
    """The part of a mapped array that stays in memory: the next rows are read ahead, past ones are released."""

    def __init__(self, values: Array, size: int):
        self._map = map_of(values)
        self._begin = int(getattr(_root(values), "offset", 0))
        self._row = int(np.prod(values.shape[1:])) * values.itemsize
        self.size = max(size, mmap.PAGESIZE)
        self._ahead = -1

    def at(self, start: int, stop: int) -> None:
        """Announce that rows start:stop will be read now, and the following ones after them."""
        if self._map is None:
            return
        place = (self._begin % mmap.ALLOCATIONGRANULARITY) + start * self._row
        window = place // self.size
        if window == self._ahead:
            return
        self._ahead = window
        self._advise(mmap.MADV_WILLNEED, (window + 1) * self.size, self.size)
        # The previous window stays, too: other threads may still read it.
        self._advise(mmap.MADV_DONTNEED, 0, max(0, window - 1) * self.size)
        if window <= 1:
            self._advise(mmap.MADV_DONTNEED, (window + 2) * self.size, len(self._map))

    def let_go(self, start: int = 0, length: int | None = None) -> None:
        """Release all of the array, or `length` bytes from `start`, from memory."""
        self._ahead = -1
        if self._map is not None:
            self._advise(mmap.MADV_DONTNEED, start, len(self._map) if length is None else length)

    def _advise(self, what: int, start: int, length: int) -> None:
        start -= start % mmap.PAGESIZE
        length = min(length, len(self._map) - start)
        if length > 0:
            self._map.madvise(what, start, length)


def _root(values: Any) -> Any:
    while isinstance(getattr(values, "base", None), np.ndarray) and not isinstance(
        getattr(values, "base", None), mmap.mmap
    ):
        values = values.base
    return values


def map_of(values: Array) -> Any:
    return getattr(_root(values), "_mmap", None)
