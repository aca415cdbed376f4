"""Operations in the order they were called, and what torch gets in return for each.

A blocking call is carried out by the thread that waits for it; anything else by a thread of the group's own. Whoever
comes first works through the queue up to what it wants, so that the order is always that of the calls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Job:
    """One operation: not yet done, done, or failed."""

    def __init__(self, run: Callable[[], Any], tensors: list[Tensor]) -> None:
        self.run = run
        self.tensors = tensors  # what its future gives
        self.done = False
        self.error: BaseException | None = None
        self.result: Any = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def execute(self) -> None:
        try:
            self.result = self.run()
        except BaseException as error:
            self.error = error
        with self._lock:
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        self.run = _nothing  # let go of what it held
        for callback in callbacks:
            callback()

    def when_done(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback()


def _nothing() -> None:
    return None


class Queue:
    """The jobs of one group."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[Job] = deque()
        self._working = threading.Lock()  # held by the thread that works through the queue
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, job: Job, *, soon: bool) -> None:
        """Add a job; `soon`: nobody is about to wait for it, so the group's own thread takes it."""
        self._jobs.append(job)
        if soon:
            self.hurry()

    def hurry(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._wanted.set()

    def finish(self, job: Job) -> None:
        """Return when this job is done, working on it and those before it if nobody else does."""
        while not job.done:
            with self._working:
                while not job.done and self._jobs:
                    self._jobs.popleft().execute()

    def _serve(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            with self._working:
                while self._jobs:
                    self._jobs.popleft().execute()
            if self._closed:
                return

    def close(self) -> None:
        self._closed = True
        self._wanted.set()


class Work(dist._Work):
    """What torch is given for a job."""

    def __init__(self, job: Job, queue: Queue) -> None:
        super().__init__()
        self._job = job
        self._queue = queue
        self._future: torch.futures.Future[list[Tensor]] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._queue.finish(self._job)
        if self._job.error is not None:
            raise self._job.error
        return True

    def is_completed(self) -> bool:
        if not self._job.done:
            self._queue.hurry()
        return self._job.done

    def is_success(self) -> bool:
        return self._job.done and self._job.error is None

    def exception(self) -> BaseException | None:
        return self._job.error

    def result(self) -> list[Tensor]:
        return self._job.tensors

    def synchronize(self) -> None:
        self.wait()

    def _source_rank(self) -> int:
        return int(self._job.result)

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        if self._future is None:
            # An exception set on a future is read by DDP as if it were tensors, and ends the process. Raised in a
            # callback, it arrives as an exception.
            raw: torch.futures.Future[Job] = torch.futures.Future()
            self._future = raw.then(_tensors_or_raise)
            self._job.when_done(lambda: raw.set_result(self._job))
            self._queue.hurry()
        return self._future


def _tensors_or_raise(future: torch.futures.Future[Job]) -> list[Tensor]:
    job = future.value()
    if job.error is not None:
        raise job.error
    return job.tensors
