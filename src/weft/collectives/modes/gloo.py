"""Mode `gloo`: torch's own Gloo among the peers of one dimension."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.modes.mode import Bounds
from weft.collectives.modes.peers import DimensionPeers
from weft.collectives.modes.tcp.flow import Flow
from weft.collectives.reduction import Reduction
from weft.collectives.torch_private import PrefixStore
from weft.errors import PeerError

OPERATORS = {
    "SUM": dist.ReduceOp.SUM,
    "AVG": dist.ReduceOp.SUM,  # divided at the end, as under every mode
    "PREMUL_SUM": dist.ReduceOp.SUM,
    "PRODUCT": dist.ReduceOp.PRODUCT,
    "MIN": dist.ReduceOp.MIN,
    "MAX": dist.ReduceOp.MAX,
    "BAND": dist.ReduceOp.BAND,
    "BOR": dist.ReduceOp.BOR,
    "BXOR": dist.ReduceOp.BXOR,
}
_TRUTH = {"SUM": "MAX", "AVG": "MAX", "PREMUL_SUM": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "BAND": "MIN"}


class Gloo:
    """Collectives by a Gloo group of the peers."""

    name = "gloo"

    def __init__(self, store: Any, index: int, size: int, timeout: timedelta) -> None:
        self.index, self.size = index, size
        group: Any = dist.ProcessGroupGloo(store, index, size, timeout)  # its stubs lack the collectives
        self._group = group
        self.barrier()  # a peer that is done at once must not be gone while others still connect to it

    @classmethod
    def connect(cls, peers: DimensionPeers) -> Gloo:
        store = PrefixStore(f"mode/{peers.name}", peers.store)
        return cls(store, peers.index, peers.size, timedelta(seconds=peers.timeout_s))

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        name = reduction.name
        if values.dtype is torch.bool:  # of which Gloo knows nothing: a byte of 0 or 1 does the same
            values, name = values.view(torch.uint8), _TRUTH.get(name, name)
        options = dist.AllreduceOptions()
        options.reduceOp = OPERATORS[name]  # type: ignore[assignment]  # both are taken
        self._wait(self._group.allreduce([values], options))

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Flow:
        """Gloo does one thing at a time, so it is done at once."""
        flow = Flow(out=[], into=[])
        self.all_reduce(values, reduction)
        flow.end()
        return flow

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        self.all_reduce(values, reduction)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        for peer, (first, last) in enumerate(bounds):
            if first < last:
                self.broadcast(values[first:last], peer)

    def broadcast(self, values: Tensor, root: int) -> None:
        self._wait(self._group.broadcast(values, root))

    def barrier(self) -> None:
        self._wait(self._group.barrier())

    def close(self) -> None:
        """Nothing to do: Gloo lets go when the last reference does."""

    def _wait(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise PeerError(
                f"a peer {'timed out' if 'Timed out' in str(error) else 'was lost'}: {error}"
            ) from error
