"""A model's queue: requests wait here for a replica, leave in batches, and may leave early.

Everything but the computing happens on the event loop, so nothing here is locked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np

from weft.serve.server.models.batching import Hold, next_batch
from weft.serve.server.models.onnx_runner import Runner
from weft.serve.server.models.tally import Tally
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocols.tensors import Array
from weft.serve.server.refusal import RefusalError

Feeds = dict[str, Array]
Outcome = list[Array] | Exception


class InferenceJob:
    """One request in the queue or at work."""

    __slots__ = ("feeds", "future", "kind", "rows", "since", "timer")

    def __init__(self, feeds: Feeds, rows: int, kind: Hashable, future: asyncio.Future[list[Array]]) -> None:
        self.feeds = feeds
        self.rows = rows
        self.kind = kind
        self.future = future
        self.since = perf_counter()
        self.timer: asyncio.TimerHandle | None = None


class RequestQueue:
    """Requests of one model, and the replicas that take them."""

    def __init__(
        self,
        runners: Sequence[Runner],
        options: ModelOptions,
        tally: Tally,
        saw: Callable[[int, float], None],  # told how long a run on so many bytes took
    ) -> None:
        self._saw = saw
        self._free = list(runners)
        self._options = options
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(len(runners), thread_name_prefix="replica")
        self._waiting: list[InferenceJob] = []
        self._working = 0
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def working(self) -> int:
        """Requests that are being computed."""
        return self._working

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._working

    def spare(self) -> Runner | None:
        """A replica that would do nothing otherwise, for a run on the event loop itself."""
        return self._free[-1] if self._free and not self._waiting else None

    def submit(
        self, feeds: Feeds, rows: int, kind: Hashable, timeout_s: float
    ) -> asyncio.Future[list[Array]]:
        """Take a place; the future is cancelled by whoever no longer wants the answer."""
        if len(self._waiting) >= self._options.queue:
            raise RefusalError(
                429, f"the queue must hold at most {self._options.queue} requests; try again", retry_after_s=1
            )
        job = InferenceJob(feeds, rows, kind, self._loop.create_future())
        job.timer = self._loop.call_later(timeout_s, self._expire, job, timeout_s)
        job.future.add_done_callback(lambda _: self._left(job))
        self._waiting.append(job)
        self._pump()
        return job.future

    def close(self) -> None:
        """Let the threads go; nobody may be waiting."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._pool.shutdown(wait=False)

    def _pump(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._free and self._waiting:
            now = perf_counter()
            decided = next_batch(self._waiting, now, self._options.max_batch, self._options.delay_ms / 1000)
            if isinstance(decided, Hold):
                self._alarm = self._loop.call_later(max(decided.until - now, 0), self._pump)
                return
            assert decided is not None
            jobs = [self._waiting[place] for place in decided.places]
            for place in reversed(decided.places):
                del self._waiting[place]
            for job in jobs:
                self._tally.waiting.add(now - job.since)
            self._working += len(jobs)
            self._pool.submit(self._work, self._free.pop(), jobs)

    def _work(self, runner: Runner, jobs: list[InferenceJob]) -> None:
        """On a thread of the pool."""
        began = perf_counter()
        outcomes = compute(runner, [job.feeds for job in jobs], [job.rows for job in jobs])
        took = perf_counter() - began
        try:
            self._loop.call_soon_threadsafe(self._done, runner, jobs, outcomes, took)
        except RuntimeError:  # the loop has ended without us
            return

    def _done(self, runner: Runner, jobs: list[InferenceJob], outcomes: list[Outcome], took: float) -> None:
        self._working -= len(jobs)
        self._free.append(runner)
        self._tally.ran(sum(job.rows for job in jobs), took)
        if len(jobs) == 1:
            self._saw(sum(array.nbytes for array in jobs[0].feeds.values()), took)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.future.done():
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)
        self._pump()

    def _expire(self, job: InferenceJob, timeout_s: float) -> None:
        if not job.future.done():
            job.future.set_exception(RefusalError(504, f"the answer took longer than {timeout_s:g} s"))

    def _left(self, job: InferenceJob) -> None:
        """Answered, expired or no longer wanted: in any case not to be computed from now on."""
        if job.timer is not None:
            job.timer.cancel()
        if job in self._waiting:
            self._waiting.remove(job)
            if job.future.cancelled():
                self._tally.cancelled += 1


def compute(runner: Runner, feeds: Sequence[Feeds], rows: Sequence[int]) -> list[Outcome]:
    """Several requests in one run; where that fails, each by itself, so that one cannot spoil the others'."""
    if len(feeds) > 1:
        try:
            together = {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
            results = runner.run(together)
            if all(len(result) == sum(rows) for result in results):
                cuts: list[Any] = [np.split(result, np.cumsum(rows[:-1])) for result in results]
                return [[cut[place] for cut in cuts] for place in range(len(feeds))]
        except Exception:  # whatever it was, it shows again below, at the request that caused it
            pass
    outcomes: list[Outcome] = []
    for feed in feeds:
        try:
            outcomes.append(runner.run(feed))
        except Exception as error:
            outcomes.append(error)
    return outcomes
