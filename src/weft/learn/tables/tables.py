"""Tables as solvers see them: rows in blocks that fit the cache, multiplied from both sides.

Solvers use nothing else, so data larger than memory needs one more class here and no other solver. Products with
coefficients are in the table's own type; sums over rows are added up in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn, Protocol

import numpy as np
from scipy import sparse

from weft.learn.tables.finite import check_finite
from weft.learn.tables.mapped import Mapped, Window, map_of
from weft.learn.tables.one_hot import OneHotGroup, one_hot_groups
from weft.learn.workers.group import current_workers, sum_over_workers
from weft.learn.workers.joint_fit import checking

Array = np.ndarray[Any, Any]

BLOCK_BYTES = 1 << 20  # of a dense block: read for margins, then for gradients from the cache
BLOCK_NONZEROS = 1 << 19  # smallest number of nonzeros of a sparse block
SAMPLED = 64  # fewest rows that column means are estimated from, of a table that has as many
SAMPLED_NUMBERS = 1 << 20  # numbers beyond which no more rows are read for that
MAPPED = 1 << 25  # bytes of a sparse table on disk kept in memory, of its values and of its indices each


class Table(Protocol):
    """Rows of features. `shift` is subtracted from each column where it is read; zeros for a sparse table."""

    rows: int
    columns: int
    stored: int
    dtype: np.dtype[Any]
    shift: Array

    def blocks(self) -> Sequence[slice]: ...

    def times(self, block: slice, coef: Array) -> Array:
        """Return X @ coef of a block, for (columns,) or (columns, outputs), in the table's type."""
        ...

    def transposed_times(self, block: slice, values: Array) -> Array:
        """Return X.T @ values of a block, for (rows,) or (rows, outputs), in float64."""
        ...

    def squares_times(self, block: slice, values: Array) -> Array:
        """Return (X * X).T @ values of a block, for (rows, outputs), in float64."""
        ...

    def gram(self, block: slice, weights: Array | None, columns: Array | None = None) -> tuple[Array, Array]:
        """Return Xᵀ diag(weights) X and Xᵀ weights of a block, of all columns or some, in float64."""
        ...

    def cross_gram(self, block: slice, weights: Array, columns: Array, others: Array) -> tuple[Array, Array]:
        """Return the weighted products of some columns with others, (columns, others), and with ones, in float64."""
        ...

    def take(self, rows: Array) -> Table: ...

    def check_finite(self) -> None:
        """Raise an error that names the first value that is not finite, if there is one."""
        ...


class DenseTable:
    """An array in memory, of either order."""

    def __init__(self, values: Array, shift: Array | None = None):
        self.values = values
        self.rows, self.columns = values.shape
        self.stored = values.size
        self.dtype = values.dtype
        self.shift = np.zeros(self.columns, values.dtype) if shift is None else shift.astype(values.dtype)
        self._shifted = bool(self.shift.any())
        self._blocks: list[slice] = []
        self.by_rows = self.columns > 0 and values.strides == (
            self.columns * values.itemsize,
            values.itemsize,
        )

    def blocks(self) -> Sequence[slice]:
        if not self._blocks:
            height = max(32, BLOCK_BYTES // max(1, self.columns * self.dtype.itemsize))
            self._blocks = [
                slice(start, min(start + height, self.rows)) for start in range(0, self.rows, height)
            ]
        return self._blocks

    def times(self, block: slice, coef: Array) -> Array:
        product: Array = self.values[block] @ coef
        return product - self.shift @ coef if self._shifted else product

    def transposed_times(self, block: slice, values: Array) -> Array:
        product = (self.values[block].T @ values).astype(np.float64)
        if self._shifted:
            product -= np.multiply.outer(self.shift, values.sum(axis=0, dtype=np.float64))
        return product

    def squares_times(self, block: slice, values: Array) -> Array:
        part = self.read(block)
        product: Array = ((part * part).T @ values).astype(np.float64)
        return product

    def gram(self, block: slice, weights: Array | None, columns: Array | None = None) -> tuple[Array, Array]:
        part = self.read(block, columns)
        if weights is None:
            ones = np.ones(len(part), self.dtype)  # a product is quicker than a sum over rows
            return (part.T @ part).astype(np.float64), (part.T @ ones).astype(np.float64)
        # Two operands that are one array let NumPy use the symmetric product, at half the cost.
        root = np.sqrt(weights).astype(self.dtype)
        scaled = part * root[:, None]
        return (scaled.T @ scaled).astype(np.float64), (scaled.T @ root).astype(np.float64)

    def cross_gram(self, block: slice, weights: Array, columns: Array, others: Array) -> tuple[Array, Array]:
        weighted = self.read(block, columns).T * weights.astype(self.dtype)
        # Picking a number out of a row takes as long as 80 multiplications: for few columns take whole rows.
        if len(columns) * self.columns < len(others) * (80 + len(columns)):
            product: Array = (weighted @ self.read(block))[:, others]
        else:
            product = weighted @ self.read(block, others)
        return product.astype(np.float64), weighted.sum(axis=1, dtype=np.float64)

    def take(self, rows: Array) -> DenseTable:
        return DenseTable(self.values[rows], self.shift)

    def check_finite(self) -> None:
        check_finite(self.values)

    def read(self, block: slice, columns: Array | None = None) -> Array:
        """Return the shifted rows of a block, all columns or some."""
        part: Array = self.values[block] if columns is None else self.values[block][:, columns]
        if not self._shifted:
            return part
        return part - (self.shift if columns is None else self.shift[columns])


class MappedTable(DenseTable):
    """A dense table on disk: the next blocks are read ahead, past ones are released."""

    def __init__(self, values: Any, shift: Array | None = None):
        super().__init__(values.array, shift)
        self.values = values  # reads through its window


class SparseTable:
    """A CSR matrix in memory."""

    def __init__(self, values: Any):
        self.values = values
        self.rows, self.columns = values.shape
        self.stored = values.nnz
        self.dtype = values.dtype
        self.shift = np.zeros(self.columns, values.dtype)
        self._parts: dict[int, Any] = {}
        # Past parts of a table on disk are released from memory.
        mapped = map_of(values.data) is not None
        self._windows = [Window(part, MAPPED) for part in (values.data, values.indices)] if mapped else []

    def blocks(self) -> Sequence[slice]:
        # The gradient of a block is as long as the table is wide: blocks need many rows to be worth that.
        nonzeros = max(BLOCK_NONZEROS, 4 * self.columns)
        marks = np.arange(0, self.stored + nonzeros, nonzeros)
        cuts = np.unique(np.searchsorted(self.values.indptr, marks)).clip(0, self.rows)
        cuts = np.unique(np.concatenate([[0], cuts, [self.rows]]))
        return [slice(int(a), int(b)) for a, b in pairwise(cuts)]

    def times(self, block: slice, coef: Array) -> Array:
        product: Array = self._part(block) @ coef
        return product

    def transposed_times(self, block: slice, values: Array) -> Array:
        product: Array = (self._part(block).T @ values).astype(np.float64)
        return product

    def squares_times(self, block: slice, values: Array) -> Array:
        part = self._part(block)
        product: Array = (part.multiply(part).T @ values).astype(np.float64)
        return product

    def gram(self, block: slice, weights: Array | None, columns: Array | None = None) -> tuple[Array, Array]:
        part = self._part(block) if columns is None else self._part(block)[:, columns]
        weights = np.ones(part.shape[0], self.dtype) if weights is None else weights.astype(self.dtype)
        product = (part.T @ part.multiply(weights[:, None]).tocsr()).toarray()
        return product.astype(np.float64), (part.T @ weights).astype(np.float64)

    def cross_gram(self, block: slice, weights: Array, columns: Array, others: Array) -> tuple[Array, Array]:
        part = self._part(block)
        weighted = part[:, columns].multiply(weights.astype(self.dtype)[:, None]).tocsr()
        product = (weighted.T @ part[:, others]).toarray()
        return product.astype(np.float64), np.asarray(weighted.sum(axis=0), np.float64).ravel()

    def take(self, rows: Array) -> SparseTable:
        return SparseTable(self.values[rows])

    @cached_property
    def one_hot(self) -> list[OneHotGroup]:
        """The groups of columns that are one-hot codes; none are looked for on disk, or among several workers' rows."""
        return [] if self._windows or current_workers() is not None else one_hot_groups(self.values)

    def check_finite(self) -> None:
        check_finite(self.values)

    def _part(self, block: slice) -> Any:
        """Return a view of the rows of a block; SciPy's own slicing would copy them at every pass."""
        if self._windows:
            ends = self.values.indptr[[block.start, block.stop]]
            for window in self._windows:
                window.at(int(ends[0]), int(ends[1]))
        if block.start not in self._parts:
            ends = self.values.indptr[block.start : block.stop + 1]
            inside = slice(int(ends[0]), int(ends[-1]))
            within = (ends - ends[0]).astype(self.values.indices.dtype)
            self._parts[block.start] = sparse.csr_array(
                (self.values.data[inside], self.values.indices[inside], within),
                shape=(len(ends) - 1, self.columns),
            )
        return self._parts[block.start]


def at_hand(table: Table) -> bool:
    """Return whether all rows of a fit are in the memory of this process."""
    return not isinstance(table, MappedTable) and current_workers() is None


def explain_sums(table: Table) -> NoReturn:
    """Raise, on all workers, the error that explains sums over the table which are not finite."""
    with checking():
        table.check_finite()
    with checking():
        raise ValueError("sums over X must be finite, got an overflow; scale the features")
    raise AssertionError("unreachable")


def table_of(X: Any, *, centred: bool) -> DenseTable | SparseTable:
    """Return a validated array or CSR matrix as a table.

    `centred` shifts a dense table by estimates of its column means, which the intercept takes up: the model is the
    same, and features far from zero, such as years, lose no digits.
    """
    if sparse.issparse(X):
        return SparseTable(X)
    kind = MappedTable if isinstance(X, Mapped) else DenseTable
    if not centred:
        return kind(X)
    some = X[:: max(1, len(X) // max(SAMPLED, min(1000, SAMPLED_NUMBERS // max(1, X.shape[1]))))]
    count = float(sum_over_workers([1.0])[0])
    with np.errstate(all="ignore"):  # complete sums are checked for values that are not finite
        own = some.mean(axis=0, dtype=np.float64), some.std(axis=0, dtype=np.float64)
    centre, spread = sum_over_workers(own)
    centre, spread = centre / count, spread / count
    # Columns that are centred already are read faster without a shift.
    return kind(X, centre if np.any(np.abs(centre) > spread) else None)
