"""The data of a process set: a group of the backend "weft", or nothing to move for a set of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.register import make_group
from weft.collectives.settings import CollectiveSettings
from weft.compat.horovod.negotiation.messages import ReduceKind

_OPERATORS = {
    ReduceKind.AVERAGE: dist.ReduceOp.SUM,  # the division is a scale factor
    ReduceKind.SUM: dist.ReduceOp.SUM,
    ReduceKind.MIN: dist.ReduceOp.MIN,
    ReduceKind.MAX: dist.ReduceOp.MAX,
    ReduceKind.PRODUCT: dist.ReduceOp.PRODUCT,
}


class DataTransport(Protocol):
    """Moves the data of one process set. Calls come from one thread, in the same order on all members."""

    @property
    def size(self) -> int: ...

    @property
    def index(self) -> int: ...

    def allreduce(self, values: Tensor, op: int) -> None:
        """Reduce flat values in place."""

    def allreduce_many(self, tensors: list[Tensor], op: int, after: Callable[[list[Tensor]], None]) -> bool:
        """Reduce flat tensors in place, `after` on each part; return False where they must be packed for it."""

    def broadcast(self, values: Tensor, root: int) -> None:
        """Give everyone the bytes of the member `root`, in place."""

    def allgather(self, outputs: Sequence[Tensor], values: Tensor) -> None:
        """Give everyone the values of all members, one tensor for each."""

    def alltoall(self, output: Tensor, values: Tensor, received: list[int], sent: list[int]) -> None:
        """Exchange rows: `sent[i]` of them go to member i, `received[i]` come from it."""

    def reducescatter(self, output: Tensor, parts: list[Tensor], op: int) -> None:
        """Reduce as many parts as there are members, and put this member's into `output`."""

    def abort(self) -> None:
        """End what is under way; any thread may call this."""

    def close(self) -> None: ...


class AloneTransport:
    """The transport of a set of one: results are copies."""

    size, index = 1, 0

    def allreduce(self, values: Tensor, op: int) -> None:
        return None

    def allreduce_many(self, tensors: list[Tensor], op: int, after: Callable[[list[Tensor]], None]) -> bool:
        after(tensors)
        return True

    def broadcast(self, values: Tensor, root: int) -> None:
        return None

    def allgather(self, outputs: Sequence[Tensor], values: Tensor) -> None:
        outputs[0].copy_(values)

    def alltoall(self, output: Tensor, values: Tensor, received: list[int], sent: list[int]) -> None:
        output.copy_(values[: sent[0]])

    def reducescatter(self, output: Tensor, parts: list[Tensor], op: int) -> None:
        output.copy_(parts[0])

    def abort(self) -> None:
        return None

    def close(self) -> None:
        return None


@dataclass(frozen=True)
class CallOptions:
    """Options of a call, as torch gives them to a group; ours are waited for by the thread that makes them."""

    reduceOp: Any = None  # noqa: N815 (torch's names)
    rootRank: int = 0  # noqa: N815
    asyncOp: bool = False  # noqa: N815


_PLAIN = CallOptions()


class GroupTransport:
    """The transport of several ranks: a group of the backend "weft", which torch.distributed knows nothing of."""

    def __init__(
        self, store: Any, index: int, size: int, timeout_s: float, settings: CollectiveSettings
    ) -> None:
        self._group = make_group(store, index, size, timedelta(seconds=timeout_s), settings)
        self.size, self.index = size, index

    def allreduce(self, values: Tensor, op: int) -> None:
        options = CallOptions(_OPERATORS[ReduceKind(op)])
        self._group.allreduce([values], options).wait()

    def allreduce_many(self, tensors: list[Tensor], op: int, after: Callable[[list[Tensor]], None]) -> bool:
        return bool(self._group.allreduce_many(tensors, CallOptions(_OPERATORS[ReduceKind(op)]), after))

    def broadcast(self, values: Tensor, root: int) -> None:
        self._group.broadcast([values], CallOptions(rootRank=root)).wait()

    def allgather(self, outputs: Sequence[Tensor], values: Tensor) -> None:
        self._group.allgather([list(outputs)], [values], _PLAIN).wait()

    def alltoall(self, output: Tensor, values: Tensor, received: list[int], sent: list[int]) -> None:
        used = values[: sum(sent)]
        self._group.all_to_all_single(output, used, received, sent, _PLAIN).wait()

    def reducescatter(self, output: Tensor, parts: list[Tensor], op: int) -> None:
        options = CallOptions(_OPERATORS[ReduceKind(op)])
        self._group.reduce_scatter([output], [parts], options).wait()

    def abort(self) -> None:
        with suppress(RuntimeError):
            self._group.abort()

    def close(self) -> None:
        with suppress(RuntimeError):
            self._group.shutdown()


def bytes_of(tensor: Tensor) -> Tensor:
    """Return a tensor's memory as flat bytes."""
    return tensor.detach().reshape(-1).view(torch.uint8)
