"""Between hosts in several racks: hosts of a rack reduce each a part, racks reduce it among themselves, and back.

An uplink between R racks then carries 2 (R - 1) / R of a tensor, whatever the number of hosts; a ring of H hosts takes
2 (H - 1) / H of it over the same uplink, and as many times that as it has neighbours in different racks.

It is a mode like any other, and what serves between racks may be one of these again, for aisles.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from weft.collectives.hierarchy import CHUNK_BYTES, CHUNKS_UNDER_WAY, Hierarchy, in_order
from weft.collectives.members import Layout
from weft.collectives.modes.mode import Background, Mode, Pending
from weft.collectives.modes.serial_thread import BackgroundCall, SerialThread
from weft.collectives.reduction import Reduction


class Levels(Hierarchy):
    """A mode between hosts in several racks: racks take the place of hosts, and hosts that of ranks.

    Several reductions are under way at a time: one thread takes them up, in order, another one down. So that a mode is
    used by one thread at a time, the way down within the rack has a mode of its own.
    """

    name = "levels"

    def __init__(
        self,
        layout: Layout,
        index: int,
        up: Mode | None,
        down: Mode | None,
        across: Mapping[int, Background],
    ) -> None:
        super().__init__(layout, index, up, across)
        self.index, self.size = index, sum(map(len, layout.hosts))
        self._way_down = down
        self.under_way = 2 * CHUNKS_UNDER_WAY
        self._rising, self._falling = SerialThread("weft-rack-up"), SerialThread("weft-rack-down")

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Pending:
        """Begin a reduction; those that are under way are carried out in the order of the calls."""
        risen = self._rising.submit(self._rise, values, reduction)
        return self._falling.submit(self._fall, values, risen)

    def _rise(self, values: Tensor, reduction: Reduction) -> list[Pending]:
        self._up(values, reduction)
        return self._start_over(values, reduction)

    def _fall(self, values: Tensor, risen: BackgroundCall[list[Pending]]) -> None:
        for flow in risen.result():
            flow.wait()
        if self._way_down is not None:
            self._way_down.all_gather(values, self.layout.local_bounds(self.rank, values.numel()))

    def _pipelined(self, values: Tensor, reduction: Reduction) -> None:
        """Within a rack, too, it is the network that works: up and down go on in the background."""
        in_order(
            torch.split(values, CHUNK_BYTES // values.element_size()),
            lambda chunk: [self.start_all_reduce(chunk, reduction)],
            lambda chunk: None,
            self.under_way,
        )

    def close(self) -> None:
        super().close()
        if self._way_down is not None:
            self._way_down.close()
        self._rising.close()
        self._falling.close()
