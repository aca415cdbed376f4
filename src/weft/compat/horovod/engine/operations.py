"""Operations of one process, from their submission to their result, and the handles that stand for them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.negotiation.messages import OpRequest
from weft.compat.horovod.negotiation.names import OpKey


class HorovodOp:
    """One operation: its request, the tensors it reads, those it writes, and what came of it.

    Written out, as there is one for each tensor of each step: what most operations leave as it is belongs to the class.
    """

    events: tuple[Any, ...] = ()  # of CUDA streams, to be awaited before the inputs are read
    done: bool = False
    error: BaseException | None = None
    extra: Any = None  # alltoall: received splits; allgather: rows of each rank; else a number

    def __init__(
        self,
        request: OpRequest,
        inputs: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] | None = None,  # None: they are made when it is carried out
        finish: Callable[[HorovodOp], Any] | None = None,  # makes the result, once outputs are there
        key: OpKey | None = None,  # under which it is in flight
    ) -> None:
        self.request, self.inputs, self.outputs, self.finish = request, inputs, outputs, finish
        self.key: OpKey = key or (request.set_id, request.name)

    def result(self) -> Any:
        """Return what came of the operation once it is done, or raise what it failed with."""
        if self.error is not None:
            raise self.error
        return self.finish(self) if self.finish is not None else self.extra


class HandleTable:
    """Handles: numbers for operations whose results were not fetched yet."""

    def __init__(self) -> None:
        self._ops: dict[int, HorovodOp] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    def add(self, op: HorovodOp) -> int:
        handle = next(self._numbers)
        self._ops[handle] = op
        return handle

    def find(self, handle: int) -> HorovodOp | None:
        """Return the operation of a handle; None if its result was fetched."""
        return self._ops.get(handle)

    def take(self, handle: int) -> HorovodOp | None:
        return self._ops.pop(handle, None)

    def tell(self, ops: Sequence[HorovodOp]) -> None:
        """Mark operations as done, and wake those who wait for them."""
        with self._changed:
            for op in ops:
                op.inputs = ()
                if op.events:
                    op.events = ()
                op.done = True
            self._changed.notify_all()

    def nudge(self) -> None:
        """Let those who wait see whether there is something for them to do."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, op: HorovodOp, or_else: Callable[[], bool] = lambda: False) -> None:
        """Return when an operation is done, or there is something else to do."""
        with self._changed:
            while not op.done and not or_else():
                self._changed.wait()


class KnownReduction:
    """A reduction on the CPU that was asked for before, and what its tensors were like."""

    def __init__(self, request: OpRequest, dtypes: Sequence[torch.dtype]) -> None:
        self.request, self.bytes = request, request.bytes
        self.key: OpKey = request.set_id, request.name
        self._dtypes = dtypes
        self._op, self._prescale, self._postscale = request.op, request.prescale, request.postscale

    def is_for(self, tensors: Sequence[Tensor], op: int, prescale: float, postscale: float) -> bool:
        """Return whether tensors are as they were, so that nothing is to be checked again."""
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
