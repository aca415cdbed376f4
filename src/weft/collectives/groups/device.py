"""Tensors in an accelerator's memory: by NCCL where ranks have one each, through main memory elsewhere.

On the way through main memory a tensor goes in chunks, in pinned memory and on streams of our own: while one chunk is
reduced, the next comes down and the one before goes back up, and what the caller computes meanwhile is not held up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from weft.collectives.hierarchy import Hierarchy
from weft.collectives.modes.mode import Bounds, even_bounds
from weft.collectives.modes.nccl import TYPES, Nccl, serves
from weft.collectives.modes.wires.wire import TensorHomes
from weft.collectives.reduction import Reduction

CHUNK_BYTES = 4 << 20
SLOTS = 3  # one comes down, one is worked on, one goes up


class Moment(Protocol):
    """A moment on a stream of the device: the end of a copy."""

    def synchronize(self) -> None:
        """Return when the device has reached this moment."""
        ...


class Lift(Protocol):
    """Copies between a device and main memory, in both directions at once."""

    def memory(self, nbytes: int) -> Tensor:
        """Main memory from which and to which the device can copy by itself."""
        ...

    def down(self, chunk: Tensor, memory: Tensor) -> Moment:
        """Start to copy from the device."""
        ...

    def up(self, memory: Tensor, chunk: Tensor) -> Moment:
        """Start to copy to the device."""
        ...


class CudaLift:
    """Copies by CUDA, with a stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._down = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._up = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def memory(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def down(self, chunk: Tensor, memory: Tensor) -> Moment:
        self._down.wait_stream(torch.cuda.current_stream(self._device))
        return _copy(self._down, chunk, memory)

    def up(self, memory: Tensor, chunk: Tensor) -> Moment:
        return _copy(self._up, memory, chunk)


def _copy(stream: torch.cuda.Stream, source: Tensor, target: Tensor) -> Moment:
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)
    event: Moment = stream.record_event()
    return event


class PinnedStaging:
    """A few buffers in pinned main memory, used in turns."""

    def __init__(self, lift: Lift, homes: TensorHomes | None = None) -> None:
        self._lift = lift
        self._homes = homes or TensorHomes()  # by which a wire with feedback knows the tensors of the device
        self._places: list[Tensor] = []
        self._used: list[Moment | None] = [None] * SLOTS  # the last copy out of each place

    def carry(self, values: Tensor, work: Callable[[Tensor], None]) -> None:
        """Let `work` change flat values of the device, a chunk at a time, in main memory."""
        chunks = torch.split(values, CHUNK_BYTES // values.element_size())
        self._make_room(min(values.nbytes, CHUNK_BYTES))
        coming = self._fetch(chunks[0], 0)
        for turn, chunk in enumerate(chunks):
            here, arrived = coming
            if turn + 1 < len(chunks):
                coming = self._fetch(chunks[turn + 1], turn + 1)
            arrived.synchronize()
            with self._homes.stands_for(here, chunk):
                work(here)
            self._used[turn % SLOTS] = self._lift.up(here, chunk)
        for used in self._used:
            if used is not None:
                used.synchronize()

    def copy_of(self, values: Tensor) -> Tensor:
        """Return a copy of all values in main memory."""
        here = self._lift.memory(values.nbytes).view(values.dtype)
        self._lift.down(values, here).synchronize()
        return here

    def _fetch(self, chunk: Tensor, turn: int) -> tuple[Tensor, Moment]:
        used = self._used[turn % SLOTS]
        if used is not None:
            used.synchronize()
        here = self._places[turn % SLOTS][: chunk.nbytes].view(chunk.dtype)
        return here, self._lift.down(chunk, here)

    def _make_room(self, nbytes: int) -> None:
        if not self._places or self._places[0].numel() < nbytes:
            size = min(CHUNK_BYTES, 1 << (nbytes - 1).bit_length())
            self._places = [self._lift.memory(size) for _ in range(SLOTS)]


class OnDevice:
    """The collectives of one group in the memory of one device: what `Hierarchy` does in main memory."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        staging: PinnedStaging,
        nccl: Nccl | None = None,
        *,
        by_hosts: bool = False,
    ) -> None:
        self._hierarchy = hierarchy
        self._staging = staging
        self._nccl = (
            nccl  # among the ranks of our host, or among all; None for one that has nobody to talk to
        )
        self._by_hosts = by_hosts  # NCCL inside hosts; the same on all of them
        self._whole = None if by_hosts else nccl

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        """Reduce flat values in place."""
        if not serves(values.dtype, reduction) or (self._whole is None and not self._by_hosts):
            self._staging.carry(values, partial(self._hierarchy.all_reduce, reduction=reduction))
        elif self._whole is not None:
            self._whole.all_reduce(values, reduction)
        else:
            self._all_reduce_by_hosts(values, reduction)

    def _all_reduce_by_hosts(self, values: Tensor, reduction: Reduction) -> None:
        """NCCL inside the host; only what we own comes down to main memory and crosses the network."""
        layout = self._hierarchy.layout
        bounds = layout.local_bounds(self._hierarchy.rank, values.numel())
        if self._nccl is not None:
            self._nccl.reduce_scatter(values, bounds, reduction)
        slices = even_bounds(values.numel(), layout.slices)
        for piece, mode in self._hierarchy.across.items():  # in the same order on every host
            mine = values[slice(*slices[piece])]
            if mine.numel():
                self._staging.carry(mine, partial(mode.all_reduce, reduction=reduction))
        if self._nccl is not None:
            self._nccl.all_gather(values, bounds)

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        """Our part gets the reduced values; the rest of the tensor is undefined afterwards."""
        if self._whole is not None and serves(values.dtype, reduction):
            self._whole.reduce_scatter(values, bounds, reduction)
            return
        here = self._staging.copy_of(values)
        self._hierarchy.reduce_scatter(here, bounds, reduction)
        mine = slice(*bounds[self._hierarchy.rank])
        values[mine].copy_(here[mine])

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        """Every rank gets every part."""
        if self._whole is not None and values.dtype in TYPES:
            self._whole.all_gather(values, bounds)
            return
        here = self._staging.copy_of(values)
        self._hierarchy.all_gather(here, bounds)
        values.copy_(here)

    def broadcast(self, values: Tensor, root: int) -> None:
        """Every rank gets the values of rank `root`."""
        if self._whole is not None and values.dtype in TYPES:
            self._whole.broadcast(values, root)
        else:
            self._staging.carry(values, partial(self._hierarchy.broadcast, root=root))

    def close(self) -> None:
        if self._nccl is not None:
            self._nccl.close()
