"""The hub of the stream: one reader of the event table for all watchers, woken by the database's writer.

However many watch, each event is read once and encoded once. A watcher that was away says the id of the last event it
saw, and gets those after it from the table first. Points of metrics come from the fan-out, one subscription a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
import sqlalchemy as sa

from weft.jobs.api.stream.watcher import BEAT, RESYNC, Watcher
from weft.jobs.reports.fanout import PointFanout
from weft.jobs.store.database import Database
from weft.jobs.store.events import StoredEvent, events_after, newest_event
from weft.jobs.store.tables import job

BEAT_S = 15.0
REREAD_S = 1.0  # how often events of other services on the same database are looked for
GATHER_S = 0.03  # for which more events are waited for before the table is read
MOST_AT_ONCE = 1000  # events in one read; who is further behind is told to begin anew
OVERLAP = (
    256  # ids that are read again: two services may commit events in another order than that of their ids
)
_METRICS = ":metrics"


class StreamHub:
    """Hands events to watchers; used in one event loop."""

    def __init__(self, database: Database, points: PointFanout) -> None:
        self._database, self._points = database, points
        self._watchers: dict[str, set[Watcher]] = {}  # by topic
        self._all: set[Watcher] = set()
        self._jobs: dict[int, asyncio.Task[None]] = {}  # that follow the points of a job
        self._owners: dict[int, int] = {}  # user of a job
        self._last = 0
        self._recent: set[int] = set()  # ids within the overlap that were handed out
        self._news = asyncio.Event()
        self._overlap = OVERLAP if database.engine.dialect.name == "postgresql" else 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read and hand out events while the block runs; at its end, all streams end."""
        loop = asyncio.get_running_loop()
        self._last = await self._database.read(newest_event)
        forget = self._database.on_commit(lambda: loop.call_soon_threadsafe(self._news.set))
        tasks = [asyncio.create_task(self._read_all()), asyncio.create_task(self._beat())]
        try:
            yield
        finally:
            forget()
            self.close()
            for task in (*tasks, *self._jobs.values()):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def close(self) -> None:
        """End all streams."""
        for watcher in self._all:
            watcher.close()

    @property
    def watchers(self) -> int:
        return len(self._all)

    def count(self, user_id: int) -> int:
        """Return how many streams a user has."""
        return sum(watcher.user_id == user_id for watcher in self._all)

    @asynccontextmanager
    async def watching(self, watcher: Watcher, after: int | None) -> AsyncIterator[None]:
        """Hand events to a watcher while the block runs, from the one after `after` on."""
        known = self._last
        watcher.offer(b'id: %d\nevent: hello\ndata: {"last": %d}\n\n' % (known, known))
        self._add(watcher)
        try:
            if after is not None and after < known:
                await self._catch_up(watcher, after, known)
            yield
        finally:
            self._remove(watcher)

    def _add(self, watcher: Watcher) -> None:
        self._all.add(watcher)
        for topic in watcher.topics:
            self._watchers.setdefault(topic, set()).add(watcher)
            if topic.endswith(_METRICS):
                number = int(topic.removeprefix("job:").removesuffix(_METRICS))
                if number not in self._jobs:
                    self._jobs[number] = asyncio.create_task(self._follow(number, topic))

    def _remove(self, watcher: Watcher) -> None:
        self._all.discard(watcher)
        for topic in watcher.topics:
            others = self._watchers.get(topic, set())
            others.discard(watcher)
            if not others:
                self._watchers.pop(topic, None)
                if topic.endswith(_METRICS):
                    self._jobs.pop(int(topic.removeprefix("job:").removesuffix(_METRICS))).cancel()

    async def _catch_up(self, watcher: Watcher, after: int, known: int) -> None:
        """Give a watcher the events that it missed, or tell it that these are too many."""
        topics = [topic for topic in watcher.topics if not topic.endswith(_METRICS)]
        missed = await self._database.read(lambda c: events_after(c, after, topics, MOST_AT_ONCE + 1))
        missed = tuple(event for event in missed if event.id <= known)
        if len(missed) > MOST_AT_ONCE:
            watcher.offer(RESYNC)
            return
        await self._learn_owners(missed)
        for event in missed:
            if self._may_see(watcher, event):
                watcher.offer(encode(event))

    # -- events -----------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REREAD_S):
                    await self._news.wait()
            self._news.clear()
            await asyncio.sleep(GATHER_S)
            # The table cannot be read for a moment: the events stay there.
            with suppress(sa.exc.SQLAlchemyError):
                await self._read_new()

    async def _read_new(self) -> None:
        while True:
            start = max(0, self._last - self._overlap)
            read = partial(events_after, last_id=start, topics=None, most=MOST_AT_ONCE)
            found = await self._database.read(read)
            fresh = tuple(event for event in found if event.id not in self._recent and event.id > start)
            if self._watchers:
                await self._learn_owners(fresh)
                for event in fresh:
                    self._hand_out(event)
            if found:
                self._last = max(self._last, found[-1].id)
            if self._overlap:
                self._recent |= {event.id for event in fresh}
                self._recent = {number for number in self._recent if number > self._last - 2 * self._overlap}
            if len(found) < MOST_AT_ONCE:
                return

    def _hand_out(self, event: StoredEvent) -> None:
        watchers = self._watchers.get(event.topic)
        if not watchers:
            return
        message = encode(event)
        for watcher in watchers:
            if self._may_see(watcher, event):
                watcher.offer(message)

    def _may_see(self, watcher: Watcher, event: StoredEvent) -> bool:
        if watcher.visible_to is not None and event.topic == "studies":
            return bool(event.data.get("owner") == watcher.visible_to)
        if watcher.visible_to is None or event.topic != "jobs":
            return True  # who may watch a job was checked when the watcher came
        return self._owners.get(event.data.get("job")) == watcher.visible_to

    async def _learn_owners(self, events: Sequence[StoredEvent]) -> None:
        """Find out whose jobs events are about, where somebody may not see all of them."""
        if all(watcher.visible_to is None for watcher in self._watchers.get("jobs", ())):
            return
        unknown = {event.data.get("job") for event in events if event.topic == "jobs"} - {*self._owners, None}
        if unknown:
            found = sa.select(job.c.id, job.c.user_id).where(job.c.id.in_(unknown))
            rows = await self._database.read(lambda c: c.execute(found).all())
            self._owners.update({row.id: row.user_id for row in rows})

    # -- points and beats -------------------------------------------------------------------------

    async def _follow(self, job_id: int, topic: str) -> None:
        head = b'event: points\ndata: {"topic":"%s","job":%d,"points":' % (topic.encode(), job_id)
        async for batch in self._points.subscribe(job_id):
            message = RESYNC if batch.resync else head + batch.encoded + b"}\n\n"
            for watcher in self._watchers.get(topic, ()):
                watcher.offer(message)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(BEAT_S)
            for watcher in self._all:
                watcher.offer(BEAT)
                if loop.time() > watcher.until_s:
                    watcher.close()


def encode(event: StoredEvent) -> bytes:
    """Return an event as the stream's readers get it."""
    data = msgspec.json.encode({"topic": event.topic, "time_ms": event.time_ms, **event.data})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), data)
