"""NumPy arrays as torch tensors and back, for frameworks whose tensors reach Weft's backend through NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def to_torch(array: Any, *, copy: bool = False) -> Tensor:
    """Return an array as a tensor; unless a copy is asked for it shares memory that may be written to."""
    if copy:
        values = np.array(array, order="C")
    else:
        values = np.ascontiguousarray(array)
        if values.shape != np.shape(array):  # NumPy makes a row of a number
            values = values.reshape(np.shape(array))
        if not values.flags.writeable:
            values = values.copy()
    if values.dtype.name == "bfloat16":  # of ml_dtypes, which torch does not know
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)


def from_torch(tensor: Tensor, dtype: Any = None) -> Any:
    """Return a tensor as an array, of NumPy's type `dtype` where it is one that torch does not know."""
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        if dtype is None:
            raise ValueError("a tensor of bfloat16 must come with its NumPy type, got none")
        return plain.view(torch.int16).numpy().view(dtype)
    return plain.numpy()


def bytes_as_torch(array: Any) -> tuple[Any, Tensor]:
    """Return a copy of an array, and its memory as a flat tensor of bytes: for copies of values of any type."""
    copy = np.array(array)
    return copy, torch.from_numpy(copy.reshape(-1).view(np.uint8))
