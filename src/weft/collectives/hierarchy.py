"""An all-reduce that follows the machine: up through the host, across hosts, and back down.

Within a host the ranks reduce each a part (a reduce-scatter), across hosts the owners of a part reduce it among
themselves, and within the host everyone takes all parts (an all-gather). Large tensors go in chunks, so that the
network carries one chunk while memory works on the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from weft.collectives.members import Layout
from weft.collectives.mode import Background, Mode, Pending, even_bounds
from weft.collectives.reduction import Reduction

CHUNK_BYTES = 1 << 20
CHUNKS_UNDER_WAY = 3
SMALL_BYTES = 1 << 15  # up to here one rank a host speaks for all


class Hierarchy:
    """The modes of a group, one per dimension, working together."""

    def __init__(
        self, layout: Layout, rank: int, local: Mode | None, across: Mapping[int, Background]
    ) -> None:
        self.layout = layout
        self.rank = rank
        self.local = local  # None for a host with one rank
        self.across = across  # by the slice it serves; none on a single host

    @property
    def one_host(self) -> Mode | None:
        """The mode that serves the whole group, where all of it shares one host."""
        return None if self.across else self.local

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        """Reduce in place."""
        if self.local is None and not self.across:
            return
        if (whole := self.one_host) is not None:
            whole.all_reduce(values, reduction)
        elif self.layout.slices == 1:
            self.across[0].all_reduce(values, reduction)
        elif values.nbytes <= SMALL_BYTES:
            self._small(values, reduction)
        elif values.nbytes <= CHUNK_BYTES:
            self._up(values, reduction)
            self._over(values, reduction)
            self._down(values)
        else:
            self._pipelined(values, reduction)

    def _small(self, values: Tensor, reduction: Reduction) -> None:
        leader = self.layout.locals_of(self.rank)[0]
        if self.local is not None:
            count = values.numel()
            self.local.reduce_scatter(
                values, [(0, count)] + [(count, count)] * (self.local.size - 1), reduction
            )
        if self.rank == leader:
            self.across[0].all_reduce(values, reduction)
        if self.local is not None:
            self.local.broadcast(values, 0)

    def _up(self, values: Tensor, reduction: Reduction) -> None:
        if self.local is not None:
            self.local.reduce_scatter(values, self.layout.local_bounds(self.rank, values.numel()), reduction)

    def _over(self, values: Tensor, reduction: Reduction) -> None:
        slices = even_bounds(values.numel(), self.layout.slices)
        for piece, mode in self.across.items():  # in the same order on every host
            first, last = slices[piece]
            if first < last:
                mode.all_reduce(values[first:last], reduction)

    def _down(self, values: Tensor) -> None:
        if self.local is not None:
            self.local.all_gather(values, self.layout.local_bounds(self.rank, values.numel()))

    def _pipelined(self, values: Tensor, reduction: Reduction) -> None:
        """Chunk n is on the network while chunk n + 1 goes up and chunk n - 1 comes down."""
        under_way: deque[tuple[Tensor, list[Pending]]] = deque()
        for chunk in torch.split(values, CHUNK_BYTES // values.element_size()):
            self._up(chunk, reduction)
            under_way.append((chunk, self._start_over(chunk, reduction)))
            if len(under_way) > CHUNKS_UNDER_WAY:
                self._finish(*under_way.popleft())
        while under_way:
            self._finish(*under_way.popleft())

    def _start_over(self, values: Tensor, reduction: Reduction) -> list[Pending]:
        slices = even_bounds(values.numel(), self.layout.slices)
        return [
            mode.start_all_reduce(values[slice(*slices[piece])], reduction)
            for piece, mode in self.across.items()
        ]

    def _finish(self, chunk: Tensor, flows: list[Pending]) -> None:
        for flow in flows:
            flow.wait()
        self._down(chunk)

    def replace_modes(self, change: Callable[[str, Any, tuple[int, ...]], Any]) -> None:
        """Put another mode in the place of each, for those who watch; `change` gets the dimension and its ranks too."""
        if self.local is not None:
            self.local = change("host", self.local, self.layout.locals_of(self.rank))
        self.across = {
            piece: change("between hosts", mode, self.layout.owners(piece))
            for piece, mode in self.across.items()
        }

    def close(self) -> None:
        for mode in (*self.across.values(), *((self.local,) if self.local else ())):
            mode.close()
