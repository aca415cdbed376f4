"""Chunks of rows on their way to the accelerator: while one is worked on, the next is copied, on its own stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]

KINDS = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}
BUFFERS = 2
cuda: Any = torch.cuda  # it has no types


class Stream:
    """A table in the host's memory, or mapped from disk, read in order, pass after pass.

    Memory that the driver can lock in place is copied from where it is; other memory by way of locked buffers.
    """

    def __init__(self, source: Any, device: torch.device, chunk_bytes: int):
        self.source = source  # an array, a host tensor, or `Mapped` rows on disk
        self.device = device
        self.rows, columns = source.shape
        self.dtype = source.dtype if isinstance(source, Tensor) else KINDS[np.dtype(source.dtype)]
        height = max(256, chunk_bytes // max(1, columns * self.dtype.itemsize))
        self.blocks = [slice(start, min(start + height, self.rows)) for start in range(0, self.rows, height)]
        self._cuda = device.type == "cuda"
        self._host = _as_tensor(source)
        self._locked = self._cuda and _lock(self._host)
        shape = (min(height, self.rows), columns)
        self._buffers = [torch.empty(shape, dtype=self.dtype, device=device) for _ in range(BUFFERS)]
        self._staging: list[Tensor] = []
        if self._cuda and not (self._locked or _pinned(self._host)):
            self._staging = [torch.empty(shape, dtype=self.dtype, pin_memory=True) for _ in range(BUFFERS)]
        self._arrived: list[Any] = [None] * BUFFERS
        self._inside: list[int] = [-1] * BUFFERS  # the first row of what a buffer holds, or soon will
        self._last = 1  # the buffer that was handed out last
        self._numbers = {block.start: number for number, block in enumerate(self.blocks)}
        self._side = cuda.Stream(device) if self._cuda else None

    def head(self) -> Tensor:
        """No rows, of the right width and type."""
        return torch.empty((0, self.source.shape[1]), dtype=self.dtype)

    def fetch(self, block: slice) -> Tensor:
        """The block, on the device; it stays until the one after the next is asked for."""
        if block.start not in self._inside:
            self._send(block, 1 - self._last)
        place = self._last = self._inside.index(block.start)
        number = self._numbers[block.start]
        after = self.blocks[(number + 1) % len(self.blocks)]  # the first comes again after the last
        if after.start not in self._inside:
            self._send(after, 1 - place)
        if self._arrived[place] is not None:
            cuda.current_stream(self.device).wait_event(self._arrived[place])
        return self._buffers[place][: block.stop - block.start]

    def _send(self, block: slice, place: int) -> None:
        """Start to copy a block into a buffer."""
        self._inside[place] = block.start
        target = self._buffers[place][: block.stop - block.start]
        if self._side is None:
            target.copy_(self._rows(block))
            return
        source = self._rows(block)
        if self._staging:
            if self._arrived[place] is not None:
                self._arrived[place].synchronize()  # the staging buffer is free again
            source = self._staging[place][: block.stop - block.start].copy_(source)
        # What the device still does with the buffer comes first.
        self._side.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(self._side):
            target.copy_(source, non_blocking=True)
            self._arrived[place] = cuda.Event()
            self._arrived[place].record(self._side)

    def _rows(self, block: slice) -> Tensor:
        if self._host is not None:
            return self._host[block]
        part = self.source[block]
        return torch.from_numpy(part if part.flags.writeable else part.copy())

    def rows_at(self, rows: Array) -> Tensor:
        """Some rows, copied to the device."""
        if self._host is not None:
            return self._host[torch.as_tensor(rows)].to(self.device)
        return torch.from_numpy(np.ascontiguousarray(self.source[rows])).to(self.device)

    def close(self) -> None:
        if self._locked and self._host is not None:
            cuda.synchronize(self.device)
            _check(cuda.cudart().cudaHostUnregister(self._host.data_ptr()))
            self._locked = False


def _as_tensor(source: Any) -> Tensor | None:
    if isinstance(source, Tensor):
        return source
    return torch.from_numpy(source) if isinstance(source, np.ndarray) and source.flags.writeable else None


def _pinned(host: Tensor | None) -> bool:
    return host is not None and host.is_pinned()


def _lock(host: Tensor | None) -> bool:
    """Lock the pages of a tensor in place, so that copies have the speed of the link; False where it cannot."""
    if host is None or host.is_pinned() or not host.is_contiguous():
        return False
    size = host.numel() * host.element_size()
    return int(cuda.cudart().cudaHostRegister(host.data_ptr(), size, 0)) == 0


def _check(code: Any) -> None:
    if int(code) != 0:
        raise RuntimeError(f"cudaHostUnregister must succeed, got error {int(code)}")
