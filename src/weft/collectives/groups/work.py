"""Operations in the order they were called, and what torch gets in return for each.

A blocking call is carried out by the thread that waits for it; anything else by a thread of the group's own. Whoever
comes first works through the queue up to what it wants, so that the order is always that of the calls.

What hangs on a future is run by the thread that did the job, and may itself wait for another job of the group (the
PowerSGD hook does). So nobody holds the queue meanwhile, and one more thread serves it if all others are so occupied.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from weft.collectives.torch_private import TorchWork
from weft.errors import CollectiveError


class CollectiveJob:
    """One operation: not yet done, done, or failed."""

    def __init__(self, run: Callable[[], Any], tensors: list[Tensor]) -> None:
        self.run = run
        self.tensors = tensors  # what its future gives
        self.done = False
        self.error: BaseException | None = None
        self.result: Any = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._ended: threading.Event | None = None

    def execute(self) -> None:
        try:
            self.result = self.run()
        except BaseException as error:
            self.error = error
        self.run = _nothing  # let go of what it held
        self.done = True
        if self._ended is not None:
            self._ended.set()

    def wait(self) -> None:
        """Return when another thread has done it."""
        with self._lock:
            if self._ended is None:
                self._ended = threading.Event()
        if not self.done:
            self._ended.wait()

    def tell(self) -> None:
        """Call the callbacks that wait for its end."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_done(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks.append(callback)
        if self.done:
            self.tell()


def _nothing() -> None:
    return None


class JobQueue:
    """The jobs of one group."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[CollectiveJob] = deque()
        self._working = threading.Lock()  # held by the thread that does a job
        self._wanted = threading.Event()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._able = 0  # threads of ours that are not in a callback
        self._closed = False

    def put(self, job: CollectiveJob, *, soon: bool) -> None:
        """Add a job; `soon`: nobody is about to wait for it, so the group's own thread takes it."""
        self._jobs.append(job)
        if soon:
            self.hurry()

    def hurry(self) -> None:
        with self._counting:
            if not self._able:
                self._able += 1
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._wanted.set()

    @property
    def busy(self) -> bool:
        """Something is under way, or waits for it."""
        return bool(self._jobs) or self._working.locked()

    def finish(self, job: CollectiveJob) -> None:
        """Return when this job is done, working on it and those before it if nobody else does.

        Whoever works goes on with what follows, so nobody waits for that thread, but for the job.
        """
        while not job.done:
            if self._working.acquire(blocking=False):
                self._do_first(unless=job)
            else:
                self.hurry()
                job.wait()

    def _do_next(self) -> bool:
        """Do the first job; return whether there was one."""
        self._working.acquire()
        return self._do_first()

    def _do_first(self, unless: CollectiveJob | None = None) -> bool:
        """Do the first job for which it is our turn now, unless there is none or that one is already done."""
        try:
            if not self._jobs or (unless is not None and unless.done):
                return False
            job = self._jobs.popleft()
            job.execute()
        finally:
            self._working.release()
        if job._callbacks:
            self._tell(job)
        return True

    def _tell(self, job: CollectiveJob) -> None:
        ours = threading.current_thread() in self._threads
        if ours:
            with self._counting:
                self._able -= 1
        if self._jobs:
            self.hurry()  # the callback may wait for one of them
        try:
            job.tell()
        finally:
            if ours:
                with self._counting:
                    self._able += 1

    def _serve(self) -> None:
        while True:
            while self._do_next():  # also what is left when it ends: somebody may wait for it
                pass
            if self._closed:
                break
            self._wanted.wait()
            self._wanted.clear()
        self._wanted.set()  # for the next one to see that it is over

    def close(self) -> None:
        """Do what was asked for so far, and end the threads."""
        self._closed = True
        self._wanted.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


class Work(TorchWork):
    """The handle that torch is given for a job."""

    def __init__(self, job: CollectiveJob, queue: JobQueue) -> None:
        super().__init__()
        self._job = job
        self._queue = queue
        self._future: torch.futures.Future[list[Tensor]] | None = None
        self._limit_s: float | None = None  # the operation's own timeout
        self._give_up: Callable[[float], Exception] | None = None

    def fail_after(self, limit_s: float, give_up: Callable[[float], Exception]) -> None:
        """Give the operation a timeout of its own; `give_up` ends it and returns the error to raise."""
        self._limit_s, self._give_up = limit_s, give_up

    def wait(self, timeout: timedelta | None = None) -> bool:
        if timeout and not self._job.done:  # zero is torch's word for none
            limit_s = timeout.total_seconds()
            if not self.finished_within(limit_s):
                raise CollectiveError(
                    f"the operation must end within {limit_s:g} s, got no end (timed out); it goes on"
                )
        elif self._limit_s is not None and self._give_up is not None:
            if not self.finished_within(self._limit_s):
                raise self._give_up(self._limit_s)
        else:
            self._queue.finish(self._job)
        if self._job.error is not None:
            raise self._job.error
        return True

    def finished_within(self, seconds: float) -> bool:
        """Let the group's own thread carry out the operation; return whether it ended in time."""
        done = threading.Event()
        self._job.when_done(done.set)
        self._queue.hurry()
        return done.wait(seconds)

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
            raw: torch.futures.Future[CollectiveJob] = torch.futures.Future()
            self._future = raw.then(_tensors_or_raise)
            self._job.when_done(lambda: raw.set_result(self._job))
            if not self._job.done:
                self._queue.hurry()
        return self._future


def _tensors_or_raise(future: torch.futures.Future[CollectiveJob]) -> list[Tensor]:
    job = future.value()
    if job.error is not None:
        raise job.error
    return job.tensors


class Letter(TorchWork):
    """The handle that torch is given for a send or a receive: Gloo's own, with our errors and a copy back."""

    def __init__(
        self, inner: Any, arrive: Callable[[], None], explain: Callable[[Exception], Exception]
    ) -> None:
        super().__init__()
        self._inner = inner
        self._arrive = arrive
        self._explain = explain
        self._arrived = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        try:
            self._inner.wait(*((timeout,) if timeout else ()))
        except RuntimeError as error:
            raise self._explain(error) from error
        if not self._arrived:
            self._arrived = True
            self._arrive()
        return True

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())

    def synchronize(self) -> None:
        self.wait()

    def _source_rank(self) -> int:
        return int(self._inner._source_rank())
