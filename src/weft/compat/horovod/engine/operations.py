"""Operations of one process, from their submission to their result, and the handles that stand for them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from weft.compat.horovod.negotiation.messages import OpRequest, ReduceKind
from weft.compat.horovod.negotiation.names import OpKey


class HorovodOp(msgspec.Struct, eq=False):
    """One operation: its request, the tensors it reads, those it writes, and what came of it.

    There is one for each tensor of each step, and so it is of a kind that is made in half the time of a class's.
    """

    request: OpRequest
    key: OpKey  # of the request
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[Tensor] | None = None  # None: they are made when it is carried out
    finish: Callable[[HorovodOp], Any] | None = (
        None  # makes the result, once outputs are there; None: it is `extra`
    )
    extra: Any = None  # alltoall: received splits; allgather: rows of each rank; a number, or the result
    events: tuple[Any, ...] = ()  # of CUDA streams, to be awaited before the inputs are read
    done: bool = False
    error: BaseException | None = None

    def result(self) -> Any:
        """Return what came of the operation once it is done, or raise what it failed with."""
        if self.error is not None:
            raise self.error
        return self.extra if self.finish is None else self.finish(self)


class HandleTable:
    """Handles: numbers for operations whose results were not fetched yet."""

    def __init__(self) -> None:
        self.ops: dict[int, HorovodOp] = {}  # by handle, until their results are fetched
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    def add(self, op: HorovodOp) -> int:
        handle = next(self._numbers)
        self.ops[handle] = op
        return handle

    def tell(self, ops: Sequence[HorovodOp]) -> None:
        """Mark operations as done, and wake the threads that wait for them."""
        with self._changed:
            for op in ops:
                op.inputs = ()
                if op.events:
                    op.events = ()
                op.done = True
            self._changed.notify_all()

    def nudge(self) -> None:
        """Let the waiting threads see whether there is something for them to do."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, op: HorovodOp, or_else: Callable[[], bool] = lambda: False) -> None:
        """Return when an operation is done, or there is something else to do."""
        with self._changed:
            while not op.done and not or_else():
                self._changed.wait()


class KnownReduction:
    """A reduction on the CPU that was asked for before, and what its tensors were like."""

    __slots__ = (
        "_dtype",
        "_dtypes",
        "_op",
        "_postscale",
        "_prescale",
        "_shape",
        "_unsaid",
        "bytes",
        "key",
        "request",
    )

    def __init__(self, request: OpRequest, dtypes: Sequence[torch.dtype]) -> None:
        self.request, self.key, self.bytes = request, request.key, request.bytes
        self._op, self._prescale, self._postscale = request.op, request.prescale, request.postscale
        self._dtypes, self._dtype = dtypes, dtypes[0] if dtypes else None
        self._shape = request.shapes[0] if request.shapes else None
        self._unsaid = None if request.op == ReduceKind.AVERAGE else request.op

    def is_for_one(self, tensor: Tensor, op: int | None, prescale: float, postscale: float) -> bool:
        """Return whether a single tensor is as it was, so that nothing is to be checked again; no `op`: the average."""
        return (
            isinstance(tensor, Tensor)
            and tensor.shape == self._shape
            and tensor.dtype is self._dtype
            and tensor.is_cpu
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and (op == self._op or op is self._unsaid)
            and prescale == self._prescale
            and postscale == self._postscale
        )

    def is_for(self, tensors: Sequence[Tensor], op: int, prescale: float, postscale: float) -> bool:
        """Return whether the tensors of a group are as they were."""
        shapes = self.request.shapes
        return (
            op == self._op
            and prescale == self._prescale
            and postscale == self._postscale
            and len(shapes) == len(tensors)
            and all(map(_is_plain, tensors, shapes, self._dtypes))
        )


def _is_plain(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Return whether something is a dense tensor on the CPU of this shape and type."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype is dtype
        and tensor.shape == shape
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
    )
