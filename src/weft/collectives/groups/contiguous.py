"""Tensors as the modes want them: flat, contiguous, on the CPU. Others are copied there and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def flat_on_cpu(tensor: Tensor) -> Iterator[Tensor]:
    """Gives memory with the tensor's values; what is done to it is done to the tensor."""
    values = flat_copy_if_needed(tensor)
    yield values
    put_back(values, tensor)


def flat_copy_if_needed(tensor: Tensor) -> Tensor:
    """The tensor's values; its own memory where that is already flat and on the CPU."""
    return flat(tensor).cpu()


def flat(tensor: Tensor) -> Tensor:
    """The tensor's values on its device; its own memory where that is already flat."""
    if tensor.dim() == 1 and tensor.is_contiguous() and _changeable(tensor):
        return tensor
    return plain(tensor).contiguous().view(-1)


def put_back(values: Tensor, tensor: Tensor) -> None:
    """Copy what came of `flat` to the tensor, if it is not its own memory."""
    if values is not tensor and values.data_ptr() != tensor.data_ptr():
        put(values, tensor)


def _changeable(tensor: Tensor) -> bool:
    return not tensor.requires_grad and not tensor.is_inference()


def plain(tensor: Tensor) -> Tensor:
    """The same memory as a tensor that any thread may change: autograd, and inference mode, have no say in it."""
    if not tensor.is_inference():
        return tensor.detach()
    alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return alias.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def put(values: Tensor, tensor: Tensor) -> None:
    """Copy flat values to where they belong."""
    plain(tensor).copy_(values.view(tensor.shape))
    if tensor.is_cuda:  # whoever is told that it is done may look from any stream
        torch.cuda.current_stream(tensor.device).synchronize()


def as_bytes(values: Tensor) -> Tensor:
    """Flat values of any type as bytes: what only copies need not know the type."""
    return values.view(torch.uint8)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """The values of all of them, one after the other, as flat bytes on the CPU."""
    parts = [as_bytes(flat_copy_if_needed(tensor)) for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def put_parts(values: Tensor, tensors: Sequence[Tensor]) -> None:
    """The way back: cut flat bytes into the tensors' sizes and copy each part to its tensor."""
    for part, tensor in zip(torch.split(values, [tensor.nbytes for tensor in tensors]), tensors, strict=True):
        if part.numel():
            put(
                part.clone().view(tensor.dtype) if part.storage_offset() % 16 else part.view(tensor.dtype),
                tensor,
            )


class Ready:
    """The moment at which tensors hold what they should: now, or when the streams they are made on come so far."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.devices: set[torch.device] = set()
        for tensor in tensors:
            if not tensor.is_cpu:
                self.devices.add(tensor.device)
        self._events = [torch.cuda.current_stream(device).record_event() for device in self.devices]

    def wait(self) -> None:
        for event in self._events:
            event.synchronize()
