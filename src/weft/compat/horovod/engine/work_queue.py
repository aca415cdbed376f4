"""Agreed work, carried out in its order: by a thread of its own, or by a thread that waits for a result anyway."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from weft.compat.horovod.engine.execution import AgreedWork
from weft.compat.horovod.engine.operations import HandleTable, HorovodOp


class WorkQueue:
    """Work in the order in which it was agreed on; one thread at a time carries it out."""

    def __init__(
        self,
        do: Callable[[AgreedWork], None],
        ended: Callable[[], None],
        handles: HandleTable,
        attend: Callable[[HorovodOp], bool],
        nudge: Callable[[], None],
    ) -> None:
        self._do, self._ended, self._handles = do, ended, handles
        self._attend, self._nudge = attend, nudge  # a thread that waits listens for what is agreed on
        self._works: deque[AgreedWork] = deque()
        self._doing = threading.Lock()  # held by the thread that carries out work
        self._wanted = threading.Event()
        self._helpers = 0  # threads that wait for results, and carry out work meanwhile
        self._counting = threading.Lock()
        self._closed = False

    def put(self, works: Sequence[AgreedWork]) -> None:
        """Add works that were agreed on."""
        self._works.extend(works)
        if self._helpers:
            self._handles.nudge()
            self._nudge()
        else:
            self._wanted.set()

    @property
    def waiting(self) -> bool:
        """Return whether there is work that nobody is at."""
        return bool(self._works) and not self._doing.locked()

    def close(self) -> None:
        """End the queue's own thread once everything was carried out."""
        self._closed = True
        self._wanted.set()

    def serve(self) -> None:
        """Carry out work that nobody waits for, until the queue is closed."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            while self._do_next():
                pass
            if self._closed:
                break
        self._ended()

    def help_until_done(self, op: HorovodOp) -> None:
        """Return when an operation is done, carrying out work meanwhile: to wake another thread for it takes longer."""
        with self._counting:
            self._helpers += 1
        try:
            while not op.done:
                if not self._try_next() and not self._attend(op):
                    self._handles.wait(op, lambda: self.waiting)
        finally:
            with self._counting:
                self._helpers -= 1
            if self._works:
                self._wanted.set()

    def _do_next(self) -> bool:
        with self._doing:
            if not self._works:
                return False
            self._do(self._works.popleft())
        return True

    def _try_next(self) -> bool:
        """Carry out the next work, if there is some and nobody else is at it."""
        if not self._works or not self._doing.acquire(blocking=False):
            return False
        try:
            if not self._works:
                return False
            self._do(self._works.popleft())
        finally:
            self._doing.release()
        return True
