"""A background thread that makes calls one after the other, so that the network works while memory does.

The thread is a daemon, and those of a ThreadPoolExecutor are not: the interpreter joins them before it ends. A script
that fails while a call here waits for a peer must end at once, since its end is what tells the peer.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from weft.errors import CollectiveError

T = TypeVar("T")


class BackgroundCall(Future[T]):
    """The result of a call that another thread makes."""

    def wait(self) -> None:
        """Return when the call has ended; raise what it raised."""
        self.result()


_Queue = queue.SimpleQueue[tuple[BackgroundCall[Any], Callable[[], Any]] | None]


class SerialThread:
    """One thread, started with its first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Queue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[..., T], *args: Any) -> BackgroundCall[T]:
        """Make a call once those before it have ended."""
        if self._closed:
            raise CollectiveError(f"{self._name} must be open, got one that was closed")
        if self._thread is None:
            # The target is no method, which would keep this object alive.
            self._thread = threading.Thread(target=_serve, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()
        call: BackgroundCall[T] = BackgroundCall()
        self._calls.put((call, partial(work, *args)))
        return call

    def close(self) -> None:
        """End the thread after the calls it was given; these fail soon, since the modes they use are closed too."""
        self._closed = True
        self._calls.put(None)


def _serve(calls: _Queue) -> None:
    while (given := calls.get()) is not None:
        call, work = given
        try:
            call.set_result(work())
        except BaseException as error:
            call.set_exception(error)
        del given, call, work  # and with them the tensors they are about
