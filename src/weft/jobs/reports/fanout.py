"""The fan-out of new points to the watchers of a job, in this process: at most four batches a second for each job.

Points that come within a quarter of a second go out as one batch, and every watcher gets the same one, so that it is
encoded once however many there are. A watcher who does not keep up is told to read the curves again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import isfinite

import msgspec

BATCH_S = 0.25  # between two batches of a job
MOST_WAITING = 16  # batches that a watcher may be behind
Points = Mapping[str, Sequence[Sequence[float]]]  # by metric: step, time in ms since 1970, value


class PointBatch(dict[str, list[Sequence[float]]]):
    """New points of a job by metric; `resync` tells a watcher that it has missed some, and none are in it."""

    resync = False

    @cached_property
    def encoded(self) -> bytes:
        """The batch as JSON; NaN and infinity are strings."""
        plain = {
            name: [[step, ms, _scalar(value)] for step, ms, value in rows] for name, rows in self.items()
        }
        return msgspec.json.encode(plain)


def _scalar(value: float) -> float | str:
    if isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


class PointFanout:
    """Publishes points to watchers; used in one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[int, set[asyncio.Queue[PointBatch]]] = {}
        self._gathered: dict[int, PointBatch] = {}
        self._sent_at: dict[int, float] = {}

    def publish(self, job_id: int, points: Points) -> None:
        """Hand points to all who watch the job, at once or with the next batch."""
        if job_id not in self._watchers or not points:
            return
        loop = asyncio.get_running_loop()
        batch = self._gathered.get(job_id)
        if batch is None:
            batch = self._gathered[job_id] = PointBatch()
            loop.call_at(max(loop.time(), self._sent_at.get(job_id, 0.0) + BATCH_S), self._send, job_id)
        for name, rows in points.items():
            batch.setdefault(name, []).extend(rows)

    def watched(self, job_id: int) -> bool:
        """Return whether anyone watches a job."""
        return job_id in self._watchers

    async def subscribe(self, job_id: int) -> AsyncIterator[PointBatch]:
        """Yield the new points of a job, until the caller has had enough."""
        queue: asyncio.Queue[PointBatch] = asyncio.Queue(MOST_WAITING)
        self._watchers.setdefault(job_id, set()).add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            watchers = self._watchers[job_id]
            watchers.discard(queue)
            if not watchers:
                del self._watchers[job_id]
                self._sent_at.pop(job_id, None)

    def _send(self, job_id: int) -> None:
        batch = self._gathered.pop(job_id)
        if job_id not in self._watchers:
            return
        self._sent_at[job_id] = asyncio.get_running_loop().time()
        for queue in self._watchers[job_id]:
            queue.put_nowait(_missed(queue) if queue.full() else batch)


def _missed(queue: asyncio.Queue[PointBatch]) -> PointBatch:
    """Empty the queue of a watcher that is far behind, and return what it is told instead."""
    with suppress(asyncio.QueueEmpty):
        while True:
            queue.get_nowait()
    batch = PointBatch()
    batch.resync = True
    return batch
