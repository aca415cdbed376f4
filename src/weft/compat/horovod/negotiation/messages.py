"""Messages of the negotiation, between each rank and the coordinator; they travel as msgpack.

A rank says which of its operations are ready: in full the first time, by a number afterwards. The coordinator answers
with what all ranks of a process set shall carry out, in one order.
"""

from __future__ import annotations

import math
from enum import IntEnum

import msgspec

GLOBAL_SET = 0


class OpKind(IntEnum):
    """The kinds of operations."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    ALLTOALL = 3
    REDUCESCATTER = 4
    BARRIER = 5
    JOIN = 6
    ADD_SET = 7
    REMOVE_SET = 8

    @property
    def word(self) -> str:
        """The kind's name as Horovod writes it in names of operations."""
        return self.name.lower()


class ReduceKind(IntEnum):
    """The reductions, by the numbers Horovod gives them."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
SELDOM_REPEATED = (OpKind.ALLGATHER, OpKind.ALLTOALL, OpKind.JOIN, OpKind.ADD_SET, OpKind.REMOVE_SET)


class OpRequest(msgspec.Struct, frozen=True, array_like=True):
    """One operation that a rank is ready for: one tensor, or the tensors of a group, which go together."""

    kind: int
    set_id: int
    name: str  # unique among the operations in flight of a rank in a process set
    dtypes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    device: str = "cpu"
    op: int = ReduceKind.SUM
    root: int = -1  # a rank of the world
    prescale: float = 1.0
    postscale: float = 1.0
    splits: tuple[int, ...] = ()  # of an alltoall: rows for each rank of the set; of ADD_SET: the ranks

    @property
    def key(self) -> tuple[int, str]:
        """Return what it is in flight under: its process set and its name."""
        return self.set_id, self.name

    @property
    def bytes(self) -> int:
        """The size of all its tensors."""
        return sum(
            math.prod(shape) * ITEM_BYTES[dtype]
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        )

    @property
    def may_repeat(self) -> bool:
        """Return whether the same request is likely to come again, so that it is worth a number."""
        given = self.name.partition(".")[2]  # what follows the operation's word
        return self.kind not in SELDOM_REPEATED and not given.startswith("noname.")


class AgreedOp(msgspec.Struct, frozen=True, array_like=True):
    """One operation that all members of its set are ready for, or have failed to agree on."""

    name: str
    number: int = -1  # that the request has from now on
    error: str = ""  # why it cannot be carried out
    sizes: tuple[
        tuple[int, ...], ...
    ] = ()  # allgather: by tensor, each member's rows; alltoall: splits by member
    request: OpRequest | None = None  # where a member has joined, and knows nothing of the operation
    value: int = -1  # JOIN: the rank that joined last; ADD_SET: the number of the set


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """Operations to be carried out at once, fused into one where that can be: first those that have a number."""

    kind: int
    set_id: int
    ops: tuple[AgreedOp, ...] = ()
    numbers: tuple[int, ...] = ()  # of requests that were agreed on before, and are as they were


class ToCoordinator(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message of a rank to the coordinator."""


class ReadyOps(ToCoordinator, frozen=True, array_like=True, tag="ready"):
    """Operations that the rank has become ready for."""

    numbers: tuple[int, ...] = ()  # those agreed on before
    requests: tuple[OpRequest, ...] = ()  # in full
    batch: int = -1  # the number of a batch that was agreed on before; nothing else is said then


class StopRequest(ToCoordinator, frozen=True, array_like=True, tag="stop"):
    """The rank shuts down, and so shall all; or its data could not be moved, and `reason` says why."""

    reason: str = ""


class RankDrained(ToCoordinator, frozen=True, array_like=True, tag="drained"):
    """The rank has carried out everything that was agreed on before the end."""


class ToRank(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message of the coordinator to a rank."""


class AgreedOps(ToRank, frozen=True, array_like=True, tag="agreed"):
    """Executions in the order in which all ranks carry them out, and numbers that mean nothing any more."""

    executions: tuple[Execution, ...]
    forgotten: tuple[int, ...] = ()
    batch: int = -1  # that these executions have together from now on


class AgreedBatch(ToRank, frozen=True, array_like=True, tag="batch"):
    """A batch to be carried out as it was before."""

    number: int


class SendAgain(ToRank, frozen=True, array_like=True, tag="again"):
    """Numbers that the coordinator does not know any more: these requests are to come in full."""

    numbers: tuple[int, ...]


class StopAll(ToRank, frozen=True, array_like=True, tag="stop"):
    """A rank has shut down, or is lost, and so nothing more is agreed on."""

    reason: str = ""


class AllDrained(ToRank, frozen=True, array_like=True, tag="drained"):
    """Everyone has carried out what was agreed on: connections may be closed."""
