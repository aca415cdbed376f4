"""Tables as tensors: on the accelerator, or streamed to it chunk by chunk. What `tables` is for NumPy, for torch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.learn.gpu.streaming import Stream

Array = np.ndarray[Any, Any]

CACHED = 32 << 20  # bytes of a block that is read twice: the second time from the accelerator's cache
CHUNK = 256 << 20  # bytes of a block that is streamed: far above what starting a copy costs
KINDS: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


def numpy_of(values: Tensor) -> Array:
    """Sums, brought home in float64."""
    found: Array = values.to(torch.float64).cpu().numpy()
    return found


def csr_tensor(crow: Tensor, column: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():  # one of them comes although what it asks for is said
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(crow, column, values, shape, check_invariants=False)


class TensorTable:
    """Rows of a dense tensor on the device. `shift` is subtracted from each column, in the sums."""

    def __init__(self, values: Tensor, shift: Array | None = None, device: torch.device | None = None):
        self.values = values
        self.rows, self.columns = values.shape
        self.stored = self.rows * self.columns
        self.torch_dtype = values.dtype
        self.dtype = KINDS[values.dtype]
        self.device = values.device if device is None else device
        self.shift = np.zeros(self.columns) if shift is None else shift
        self._shift = torch.as_tensor(self.shift, dtype=self.torch_dtype, device=self.device)
        self._shifted = bool(self.shift.any())

    def blocks(self) -> Sequence[slice]:
        return self._cut(CACHED)

    def large_blocks(self) -> Sequence[slice]:
        """For passes that read a block once."""
        return [slice(0, self.rows)]

    def _cut(self, size: int) -> list[slice]:
        height = max(256, size // max(1, self.columns * self.dtype.itemsize))
        return [slice(start, min(start + height, self.rows)) for start in range(0, self.rows, height)]

    def part(self, block: slice) -> Tensor:
        """The block's rows, on the device, as they are: the shift is not subtracted."""
        return self.values[block]

    def times(self, block: slice, coef: Tensor) -> Tensor:
        product = self.part(block) @ coef
        return product - self._shift @ coef if self._shifted else product

    def transposed_times(self, block: slice, values: Tensor) -> Array:
        product = numpy_of(self.part(block).T @ values)
        if self._shifted:
            product -= np.multiply.outer(self.shift, numpy_of(values.sum(0, dtype=torch.float64)))
        return product

    def squares_times(self, block: slice, values: Tensor) -> Array:
        part = self.part(block) - self._shift
        return numpy_of((part * part).T @ values)

    def gram(self, block: slice, weights: Tensor | None, columns: Array | None = None) -> tuple[Array, Array]:
        part = self.part(block) - self._shift if self._shifted else self.part(block)
        if columns is not None:
            part = part[:, torch.as_tensor(columns, device=self.device)]
        if weights is None:
            return numpy_of(part.T @ part), numpy_of(part.sum(0, dtype=torch.float64))
        scaled = part * weights[:, None]
        return numpy_of(part.T @ scaled), numpy_of(scaled.sum(0, dtype=torch.float64))

    def cross_gram(self, block: slice, weights: Tensor, columns: Array, others: Array) -> tuple[Array, Array]:
        part = self.part(block) - self._shift if self._shifted else self.part(block)
        weighted = part[:, torch.as_tensor(columns, device=self.device)] * weights[:, None]
        product = weighted.T @ part[:, torch.as_tensor(others, device=self.device)]
        return numpy_of(product), numpy_of(weighted.sum(0, dtype=torch.float64))

    def take(self, rows: Array) -> TensorTable:
        return TensorTable(self.values[torch.as_tensor(rows, device=self.values.device)], self.shift)

    def check_finite(self) -> None:
        for block in self.blocks():
            bad = torch.nonzero(~torch.isfinite(self.part(block)))
            if len(bad):
                row, column = bad[0].tolist()
                raise ValueError(
                    f"Input X contains NaN or infinity: row {block.start + row}, column {column}"
                )


class StreamedTable(TensorTable):
    """Rows in the host's memory or on disk: while one chunk is worked on, the next is on its way."""

    def __init__(self, stream: Stream, shift: Array | None = None):
        super().__init__(stream.head(), shift, stream.device)
        self.stream = stream
        self.rows = stream.rows
        self.stored = self.rows * self.columns

    def blocks(self) -> Sequence[slice]:
        return self.stream.blocks

    def large_blocks(self) -> Sequence[slice]:
        return self.stream.blocks

    def part(self, block: slice) -> Tensor:
        return self.stream.fetch(block)

    def take(self, rows: Array) -> TensorTable:
        return TensorTable(self.stream.rows_at(rows), self.shift)


class SparseTensorTable(TensorTable):
    """A CSR tensor, and its transpose: both products run over rows, in a fixed order."""

    def __init__(self, values: Tensor):
        super().__init__(values)
        self.stored = int(values.values().numel())
        back = values.to_sparse_csc()
        shape = (self.columns, self.rows)
        self._back = csr_tensor(back.ccol_indices(), back.row_indices(), back.values(), shape)

    def blocks(self) -> Sequence[slice]:
        return [slice(0, self.rows)]

    def part(self, block: slice) -> Tensor:
        return self.values

    def times(self, block: slice, coef: Tensor) -> Tensor:
        return self.values @ coef

    def transposed_times(self, block: slice, values: Tensor) -> Array:
        return numpy_of(self._back @ values)

    def squares_times(self, block: slice, values: Tensor) -> Array:
        squares = self._back.values().square()
        back = self._back
        squared = csr_tensor(back.crow_indices(), back.col_indices(), squares, (self.columns, self.rows))
        return numpy_of(squared @ values)

    def gram(self, block: slice, weights: Tensor | None, columns: Array | None = None) -> tuple[Array, Array]:
        ones = torch.ones(self.rows, dtype=self.torch_dtype, device=self.device)
        heavy = ones if weights is None else weights
        if columns is not None:
            return self.cross_gram(block, heavy, columns, columns)
        part = self.values.to_dense()
        return numpy_of(part.T @ (part * heavy[:, None])), numpy_of(part.T @ heavy)

    def cross_gram(self, block: slice, weights: Tensor, columns: Array, others: Array) -> tuple[Array, Array]:
        """A few columns at a time are made dense, and multiplied with all."""
        picked = torch.as_tensor(others, device=self.device)
        few = max(1, CACHED // max(1, self.rows * self.dtype.itemsize))
        products, totals = [np.empty((0, len(others)))], [np.empty(0)]
        for start in range(0, len(columns), few):
            weighted = self._dense(columns[start : start + few]) * weights[:, None]
            products.append(numpy_of((self._back @ weighted)[picked].T))
            totals.append(numpy_of(weighted.sum(0, dtype=torch.float64)))
        return np.concatenate(products), np.concatenate(totals)

    def _dense(self, columns: Array) -> Tensor:
        """Some columns, (rows, columns)."""
        chosen = torch.as_tensor(columns, device=self.device)
        return _dense_rows(self._back, chosen, self.rows).T

    def take(self, rows: Array) -> TensorTable:
        chosen = torch.as_tensor(rows, device=self.device)
        return TensorTable(_dense_rows(self.values, chosen, self.columns))

    def check_finite(self) -> None:
        bad = torch.nonzero(~torch.isfinite(self.values.values()))
        if len(bad):
            place = int(bad[0])
            row = int(torch.searchsorted(self.values.crow_indices(), place, right=True)) - 1
            column = int(self.values.col_indices()[place])
            raise ValueError(f"Input X contains NaN or infinity: row {row}, column {column}")


def _dense_rows(matrix: Tensor, chosen: Tensor, width: int) -> Tensor:
    """Some rows of a CSR tensor."""
    crow = matrix.crow_indices()
    picked = torch.zeros((len(chosen), width), dtype=matrix.dtype, device=matrix.device)
    counts = (crow[1:] - crow[:-1])[chosen]
    where = torch.repeat_interleave(torch.arange(len(chosen), device=matrix.device), counts)
    first = torch.repeat_interleave(crow[:-1][chosen] - counts.cumsum(0) + counts, counts)
    places = first + torch.arange(len(where), device=matrix.device)
    picked[where, matrix.col_indices()[places].long()] = matrix.values()[places]
    return picked
