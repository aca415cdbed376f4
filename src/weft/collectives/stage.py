"""A thread that carries out calls in the order in which they are given, so that the network works while memory does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from weft.errors import CollectiveError

T = TypeVar("T")


class Task(Generic[T]):
    """A call under way."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._future: Future[T] = Future()

    def run(self) -> None:
        try:
            self._future.set_result(self._work())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> T:
        """What it gave, when it has ended; raises what it raised."""
        return self._future.result()

    def wait(self) -> None:
        self.result()


class Stage:
    """One thread, begun when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Task[object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, work: Callable[[], T]) -> Task[T]:
        """Begin a call once those before it have ended."""
        if self._closed:
            raise CollectiveError(f"{self._name} must be open, got one that was closed")
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._tasks,), name=self._name, daemon=True
            )  # not of a method: it would keep us alive
            self._thread.start()
        task = Task(work)
        self._tasks.put(task)  # type: ignore[arg-type]  # what a task gives is its caller's
        return task

    def close(self) -> None:
        """Let the thread end after what it was given; that fails soon, since the modes are closed too."""
        self._closed = True
        self._tasks.put(None)


def _serve(tasks: queue.SimpleQueue[Task[object] | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task  # and with it the tensors it was about
