"""The stream's route: checks which topics the caller may watch, and writes messages until one side has had enough."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress

import sqlalchemy as sa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.state import ApiCall
from weft.jobs.api.stream.hub import StreamHub
from weft.jobs.api.stream.watcher import Watcher
from weft.jobs.api.types.accounts import StreamQuery
from weft.jobs.store.jobs import need_job
from weft.jobs.studies.store import need_study

MOST_TOPICS = 100
MOST_WATCHERS = 2000
MOST_OF_A_USER = 1000
LONGEST_S = 3600.0  # after which a watcher has to come back, and is checked again
_TOPIC = re.compile(r"jobs|hosts|studies|vision|job:(\d{1,15})(?::metrics)?|study:(\d{1,15})")
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes messages on at once
]


async def stream(call: ApiCall) -> Response:
    query: StreamQuery = call.query
    hub = call.state.hub
    topics = await _topics(call, query.topics)
    if hub.watchers >= MOST_WATCHERS or hub.count(call.identity.user_id) >= MOST_OF_A_USER:
        raise ApiRefusal(429, "streams must be few, got too many at once; close some", retry_after_s=10)
    identity = call.identity
    until_s = asyncio.get_running_loop().time() + LONGEST_S
    watcher = Watcher(topics, user_id=identity.user_id, visible_to=identity.visible_to, until_s=until_s)
    last = call.request.headers.get("last-event-id", "")
    after = int(last) if re.fullmatch(r"[0-9]{1,15}", last) else query.after
    return StreamResponse(hub, watcher, after)


async def _topics(call: ApiCall, text: str) -> list[str]:
    topics = list(dict.fromkeys(topic for topic in text.split(",") if topic))
    if not topics or len(topics) > MOST_TOPICS:
        raise ApiRefusal(422, f"topics must be 1 to {MOST_TOPICS} names, got {len(topics)}; name some")
    numbers: set[int] = set()
    studies: set[int] = set()
    for topic in topics:
        found = _TOPIC.fullmatch(topic)
        if found is None:
            raise ApiRefusal(
                422,
                f"topics must be jobs, hosts, studies, vision, job:ID, job:ID:metrics or study:ID, got {topic[:80]!r}",
            )
        if found[1]:
            numbers.add(int(found[1]))
        if found[2]:
            studies.add(int(found[2]))

    def check(connection: sa.Connection) -> None:
        for number in numbers:
            need_job(connection, number, visible_to=call.identity.visible_to)
        for number in studies:
            need_study(connection, number, visible_to=call.identity.visible_to)

    if numbers or studies:
        await call.database.read(check)
    # Events of data sets are written for each user who may see them.
    if "vision" in topics:
        topics = [topic for topic in topics if topic != "vision"]
        return [*map(_plain, topics), f"vision:{call.identity.name}", "vision:*"]
    return list(map(_plain, topics))


def _plain(topic: str) -> str:
    """Return a topic with the number as the service writes it."""
    if ":" not in topic:
        return topic
    word, number, *rest = topic.split(":")
    return ":".join([word, str(int(number)), *rest])


class StreamResponse(Response):
    """An answer that goes on until the client leaves or the hub ends it."""

    def __init__(self, hub: StreamHub, watcher: Watcher, after: int | None) -> None:
        super().__init__()
        self._hub, self._watcher, self._after = hub, watcher, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        leaving = asyncio.create_task(self._until_gone(receive))
        try:
            async with self._hub.watching(self._watcher, self._after):
                while message := await self._watcher.next():
                    await send({"type": "http.response.body", "body": message, "more_body": True})
            with suppress(Exception):  # the client has left
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._watcher.close()


HANDLERS: Mapping[str, Handler] = {"stream": stream}
