"""Mode `nccl`: torch's NCCL among ranks that have an accelerator each. Tensors are in its memory.

NCCL does not see that a peer has died, and torch ends the process when it takes too long. So we look ourselves while
we wait, and give up in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.modes.gloo import OPERATORS
from weft.collectives.modes.mode import Bounds, even_bounds
from weft.collectives.modes.peers import DimensionPeers, did_not_come
from weft.collectives.reduction import Reduction
from weft.collectives.torch_private import PrefixStore
from weft.errors import PeerError

_OPERATORS = {name: operator for name, operator in OPERATORS.items() if name not in ("BAND", "BOR", "BXOR")}
TYPES = frozenset(
    (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
    )
)
_LOOK_S = 0.2  # between two looks at the peers
_NAP_S = 5e-5


def available() -> bool:
    return dist.is_nccl_available() and torch.cuda.is_available()


def connect(store: Any, index: int, size: int, timeout: timedelta) -> Any:
    """A group of torch's NCCL; its own watch must not come before ours, since it ends the process."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout * 2 + timedelta(minutes=1)
    return dist.ProcessGroupNCCL(store, index, size, options)


def serves(dtype: torch.dtype, reduction: Reduction) -> bool:
    """Return whether NCCL has this type and this operator."""
    return dtype in TYPES and reduction.name in _OPERATORS


class Nccl:
    """Collectives by an NCCL group of the peers."""

    name = "nccl"

    def __init__(
        self,
        group: Any,  # torch's; its stubs lack the collectives
        index: int,
        size: int,
        *,
        timeout_s: float,
        lost: Callable[[], int | None] = lambda: None,  # a peer that has died
        describe: Callable[[int, str], str] = lambda peer, what: f"peer {peer} {what}",
    ) -> None:
        self.index, self.size = index, size
        self._group = group
        self._timeout_s = timeout_s
        self._lost = lost
        self._describe = describe

    @classmethod
    def connect(cls, peers: DimensionPeers) -> Nccl:
        store = PrefixStore(f"nccl/{peers.name}", peers.store)
        return cls(
            connect(store, peers.index, peers.size, timedelta(seconds=peers.timeout_s)),
            peers.index,
            peers.size,
            timeout_s=peers.timeout_s,
            lost=lambda: next((peer for peer in range(peers.size) if not peers.lives(peer)), None),
            describe=peers.describe,
        )

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = _OPERATORS[reduction.name]  # type: ignore[assignment]  # both are taken
        self._wait(self._group.allreduce([values], options))

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        operator = _OPERATORS[reduction.name]
        if _even(values, bounds):
            mine = values[slice(*bounds[self.index])].clone()
            even = dist.ReduceScatterOptions()
            even.reduceOp = operator  # type: ignore[assignment]
            self._wait(self._group._reduce_scatter_base(mine, values, even))
            values[slice(*bounds[self.index])] = mine
            return
        works = []
        for peer, (first, last) in enumerate(bounds):
            options = dist.ReduceOptions()
            options.reduceOp = operator  # type: ignore[assignment]
            options.rootRank = peer
            if first < last:
                works.append(self._group.reduce([values[first:last]], options))
        self._wait(*works)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        if _even(values, bounds):
            mine = values[slice(*bounds[self.index])].clone()
            self._wait(self._group._allgather_base(values, mine))
        else:
            self._wait(*(self._spread(values[slice(*part)], peer) for peer, part in enumerate(bounds)))

    def broadcast(self, values: Tensor, root: int) -> None:
        self._wait(self._spread(values, root))

    def _spread(self, values: Tensor, root: int) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank = root
        return self._group.broadcast([values], options) if values.numel() else None

    def barrier(self) -> None:
        self._wait(self._group.barrier())

    def close(self) -> None:
        """Let go of connections; safe to call again."""
        group, self._group = self._group, None
        if group is not None and hasattr(group, "abort"):
            group.abort()

    def _wait(self, *works: Any) -> None:
        """Return when the device has done it all; raise as soon as it never will."""
        began = looked = time.monotonic()
        for work in works:
            while work is not None and not work.is_completed():
                now = time.monotonic()
                if now - began > 10 * _NAP_S:  # most are done before it is worth going to sleep
                    time.sleep(_NAP_S)
                if now - looked < _LOOK_S:
                    continue
                looked = now
                if (peer := self._lost()) is not None:
                    self._give_up(self._describe(peer, "died"))
                if now - began > self._timeout_s:
                    self._give_up(self._describe(self._next_peer, did_not_come(self._timeout_s)))
            if work is not None:
                self._check(work)

    @property
    def _next_peer(self) -> int:
        return (self.index + 1) % self.size

    def _check(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            self._give_up(f"a peer was lost: {error}")

    def _give_up(self, message: str) -> None:
        self.close()
        raise PeerError(message)


def _even(values: Tensor, bounds: Bounds) -> bool:
    """Return whether the parts make up the tensor, one after the other, and are of one size."""
    return tuple(map(tuple, bounds)) == even_bounds(values.numel(), len(bounds)) and (
        values.numel() % len(bounds) == 0
    )
