"""A copy of one member's share of the state, in host memory: taken while training stands still, written afterwards.

All members hold the same state. It is seen as one row of bytes and cut in as many equal parts as there are members to
write it, along rows of tensors, so that each copies and writes its part only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

PIECE_BYTES = 16 << 20  # a writer may hold up the other threads of its process, for a piece at most
_ALIGNMENT = 64


@dataclass(frozen=True)
class TensorPiece:
    """Rows [start, stop) of one tensor; one without rows has one."""

    tensor: int  # its number in the image
    start: int
    stop: int


def cut(tensors: Sequence[Tensor], parts: int) -> list[list[TensorPiece]]:
    """Return the share that each member copies and writes; all members compute the same."""
    total = sum(tensor.nbytes for tensor in tensors)
    pieces: list[list[TensorPiece]] = [[] for _ in range(parts)]
    offset = 0
    for number, tensor in enumerate(tensors):
        if not tensor.nbytes:
            continue
        rows = tensor.shape[0] if tensor.ndim else 1
        row_bytes = tensor.nbytes // rows
        start = 0
        while start < rows:
            part = (offset + start * row_bytes) * parts // total
            next_part = -(-(part + 1) * total // parts)  # its first byte
            stop = min(rows, -(-(next_part - offset) // row_bytes), start + max(1, PIECE_BYTES // row_bytes))
            stop = max(stop, start + 1)
            pieces[part].append(TensorPiece(number, start, stop))
            start = stop
        offset += tensor.nbytes
    return pieces


def rows_of(tensor: Tensor, piece: TensorPiece) -> Tensor:
    return tensor[piece.start : piece.stop] if tensor.ndim else tensor


class Snapshot:
    """Host memory for a copy, used again from one to the next; pinned where the state is on a GPU."""

    def __init__(self) -> None:
        self._layout: list[tuple[torch.Size, torch.dtype]] = []
        self._block = torch.empty(0, dtype=torch.uint8)
        self._pinned = False
        self._copies: list[Tensor] = []

    def take(self, tensors: Sequence[Tensor], pieces: Sequence[TensorPiece]) -> list[Tensor]:
        """Copies of the pieces; they hold until the next call."""
        live = [rows_of(tensors[piece.tensor], piece) for piece in pieces]
        pinned = any(tensor.is_cuda for tensor in live)
        layout = [(tensor.shape, tensor.dtype) for tensor in live]
        if layout != self._layout or pinned != self._pinned:
            self._make_room(layout, pinned)
        for copy, tensor in zip(self._copies, live, strict=True):
            copy.copy_(tensor, non_blocking=True)
        if pinned:
            torch.cuda.synchronize()
        return self._copies

    def _make_room(self, layout: list[tuple[torch.Size, torch.dtype]], pinned: bool) -> None:
        """Cut a block of memory in tensors that each own theirs: a writer would copy a part of something larger."""
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in layout]
        starts = [0, *accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]
        if starts[-1] > self._block.nbytes or pinned != self._pinned:
            self._copies, self._block = [], torch.empty(0)  # let go of the memory before we ask for more
            self._block = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=pinned)
        memory = self._block.numpy()
        self._layout, self._pinned = layout, pinned
        self._copies = [
            torch.from_numpy(memory[start : start + size]).view(dtype).view(shape)
            for start, size, (shape, dtype) in zip(starts, sizes, layout, strict=False)
        ]
