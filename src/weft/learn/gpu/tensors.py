"""Users' arrays as tensors: tables on the accelerator are taken as they are, others are brought there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from weft.learn import inputs
from weft.learn.gpu.streaming import Stream
from weft.learn.gpu.tables import CHUNK, KINDS, SparseTensorTable, StreamedTable, TensorTable, csr_tensor
from weft.learn.inputs import SMALL
from weft.learn.tables.mapped import Mapped
from weft.learn.tables.sizes import parse_memory
from weft.learn.tables.source import is_source

Array = np.ndarray[Any, Any]

SPARE = 0.7  # of the free memory that a table may take


def is_tensor_like(X: Any) -> bool:
    """Whether X is an array of torch, CuPy or cuDF, and not NumPy's or a host's frame."""
    home = type(X).__module__.split(".")[0]
    return isinstance(X, Tensor) or home in ("cudf", "cupy") or hasattr(X, "__cuda_array_interface__")


def tensor_of(X: Any) -> Tensor:
    """An array of another library as a tensor, without a copy; a cuDF frame is put together by cuDF."""
    if isinstance(X, Tensor):
        return X
    if hasattr(X, "to_cupy"):
        X = X.to_cupy()
    tensor: Tensor = from_dlpack(X)
    return tensor


@contextmanager
def table_on(
    place: str, estimator: Any, X: Any, y: Any, memory: str | int | None, *, centred: bool
) -> Iterator[tuple[TensorTable, Any]]:
    """X as a table on the device (or streaming to it, where it is larger than `memory` or the device has), and y."""
    device = torch.device(place)
    values, y = _checked(estimator, X, y, memory)
    stream: Stream | None = None
    try:
        if sparse.issparse(values) or (isinstance(values, Tensor) and values.layout == torch.sparse_csr):
            yield SparseTensorTable(_csr(values, device)), y
            return
        if isinstance(values, Mapped) or _too_large(values, device, memory):
            bound = parse_memory(memory) // 4 if memory is not None else CHUNK
            stream = Stream(values, device, min(bound, CHUNK))
            yield StreamedTable(stream, _shift(values, centred)), y
            return
        shift = _shift(values, centred)
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(_writable(values))
        tensor = tensor.to(device)
        if tensor.dtype == torch.float32 and tensor.numel() <= SMALL:
            tensor = tensor.double()  # small tables are widened, which costs nothing
        yield TensorTable(tensor, shift), y
    finally:
        if stream is not None:
            stream.close()


def _checked(estimator: Any, X: Any, y: Any, memory: str | int | None) -> tuple[Any, Any]:
    """Set what a fit learns about columns; the table as an array, a tensor, a CSR matrix or rows on disk."""
    if is_source(X):
        return inputs.stored_table(estimator, X, y, memory)
    if y is None:
        raise ValueError("a fit requires y to be passed, got y=None; pass the target")
    y = y if is_tensor_like(y) else np.asarray(y)
    if not is_tensor_like(X):
        options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": False}
        X = validate_data(estimator, X, **options)
        _check_rows(X, y)
        return X, y
    names = list(map(str, X.columns)) if hasattr(X, "columns") else None
    X = tensor_of(X)
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got the shape {tuple(X.shape)}")
    _check_rows(X, y)
    if X.dtype not in KINDS:
        X = X.to(torch.float32)
    estimator.n_features_in_ = X.shape[1]
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, object)
    return X, y


def _check_rows(X: Any, y: Any) -> None:
    if X.shape[0] != len(y):
        raise ValueError(f"X and y must have as many rows, got {X.shape[0]} and {len(y)}")


def _csr(values: Any, device: torch.device) -> Tensor:
    if isinstance(values, Tensor):
        return values.to(device)
    parts = (values.indptr.astype(np.int64), values.indices.astype(np.int64), values.data)
    indptr, indices, data = (torch.from_numpy(part).to(device) for part in parts)
    return csr_tensor(indptr, indices, data, values.shape)


def _too_large(values: Any, device: torch.device, memory: str | int | None) -> bool:
    """Whether a table in the host's memory must be streamed."""
    if isinstance(values, Tensor) and values.device.type == "cuda":
        return False
    size = int(np.prod(values.shape)) * int(values.dtype.itemsize)
    if memory is not None:
        return size > parse_memory(memory)
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return bool(size > SPARE * free)


def _shift(values: Any, centred: bool) -> Array | None:
    """Rough means of the columns, where they are far from zero; as in `tables`."""
    if not centred or not len(values):
        return None
    some = values[:: max(1, len(values) // 1000)]
    if isinstance(some, Tensor):
        some = some.cpu().numpy()
    centre, spread = some.mean(axis=0, dtype=np.float64), some.std(axis=0, dtype=np.float64)
    return centre if np.any(np.abs(centre) > spread) else None


def _writable(values: Array) -> Array:
    return values if values.flags.writeable else values.copy()


def vector_on(table: TensorTable, values: Any) -> Tensor:
    """Numbers, one for each row, on the table's device and in its type."""
    tensor = tensor_of(values) if is_tensor_like(values) else torch.from_numpy(np.ascontiguousarray(values))
    return tensor.to(table.device, table.torch_dtype)


def classes_of(y: Any, device: torch.device) -> tuple[Array, Tensor]:
    """The classes, and the code of each row on the device; numbers are sorted there."""
    if is_tensor_like(y) or np.asarray(y).dtype.kind in "iub":
        there = (tensor_of(y) if is_tensor_like(y) else torch.as_tensor(np.asarray(y))).to(device)
        found, codes = torch.unique(there.reshape(-1), sorted=True, return_inverse=True)
        classes: Array = found.cpu().numpy()
    else:
        classes, places = np.unique(np.asarray(y), return_inverse=True)
        codes = torch.from_numpy(places.ravel()).to(device)
    if len(classes) < 2:
        raise ValueError(
            f"the target must have at least 2 classes to tell apart, got one class: {classes[0]!r}"
        )
    return classes, codes
