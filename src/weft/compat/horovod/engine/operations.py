"""Operations of one process, from their submission to their result, and the handles that stand for them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from weft.compat.horovod.negotiation.messages import OpRequest
from weft.compat.horovod.negotiation.names import OpKey


@dataclass(slots=True, eq=False)
class HorovodOp:
    """One operation: its request, the tensors it reads, those it writes, and what came of it."""

    request: OpRequest
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[Tensor] | None = None  # None: they are made when it is carried out
    finish: Callable[[HorovodOp], Any] | None = None  # makes the result, once outputs are there
    events: tuple[Any, ...] = ()  # of CUDA streams, to be awaited before the inputs are read
    done: bool = False
    error: BaseException | None = None
    extra: Any = None  # alltoall: received splits; allgather: rows of each rank; else a number
    key: OpKey = field(init=False)  # under which it is in flight
    number: int = -1  # that stood for its request when it was submitted

    def __post_init__(self) -> None:
        self.key = self.request.set_id, self.request.name

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
                op.inputs, op.events = (), ()
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
