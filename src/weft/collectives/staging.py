"""Tensors as the modes want them: flat, contiguous, on the CPU. Others are copied there and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def flat_on_cpu(tensor: Tensor, *, keep_shape: bool = False) -> Iterator[Tensor]:
    """Gives memory with the tensor's values; what is done to it is done to the tensor."""
    with torch.no_grad():
        plain = tensor.detach()
        values = plain if plain.device.type == "cpu" and plain.is_contiguous() else plain.contiguous().cpu()
        yield values if keep_shape else values.view(-1)
        if values.data_ptr() != plain.data_ptr():
            plain.copy_(values)
