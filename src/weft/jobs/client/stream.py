"""Events of the service as they come; a connection that breaks is made again, and nothing is missed or told twice."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from weft.jobs.client.address import ServiceMissingError
from weft.jobs.client.connection import BEAT_S, ServiceConnection, ServiceError

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0  # before a broken stream is opened again
GIVE_UP_S = 60.0  # without a connection


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    id: int | None  # None: not kept, such as points of metrics
    kind: str
    data: Any


def parse_events(lines: Iterable[str]) -> Iterator[StreamEvent]:
    """Yield the events in the lines of `text/event-stream`; an event that is cut off is left out."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:  # a line that begins with a colon is a beat
                fields.setdefault(name, []).append(value.removeprefix(" "))
        elif fields:
            if "data" in fields or "event" in fields:
                yield _event(fields)
            fields = {}


def _event(fields: dict[str, list[str]]) -> StreamEvent:
    number = fields.get("id", [""])[-1]
    text = "\n".join(fields.get("data", []))
    data: Any = text
    with suppress(msgspec.MsgspecError):
        data = msgspec.json.decode(text)
    return StreamEvent(
        int(number) if number.isdecimal() else None, fields.get("event", ["message"])[-1], data
    )


def follow_events(
    connection: ServiceConnection,
    topics: Iterable[str],
    *,
    after: int | None = None,
    give_up_s: float = GIVE_UP_S,
    silence_s: float = 3 * BEAT_S,
) -> Iterator[StreamEvent]:
    """Yield the events of some topics for ever, from the id `after` on; `opened` comes with every new connection.

    A connection without a word for `silence_s` is made anew. A service that is away for longer than `give_up_s` ends
    it with an error.
    """
    names, lost_s, wait_s = ",".join(topics), None, FIRST_WAIT_S
    while True:
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        try:
            with connection.open("/stream", {"topics": names}, headers, silence_s=silence_s) as answer:
                lost_s, wait_s = None, FIRST_WAIT_S
                yield StreamEvent(None, "opened", None)
                for event in parse_events(answer.iter_lines()):
                    after = event.id if event.id is not None else after
                    yield event
        except (ServiceMissingError, ServiceError) as error:
            if isinstance(error, ServiceError) and 400 <= error.status < 500 and error.status != 429:
                raise
            lost_s = lost_s or time.monotonic()
            if time.monotonic() - lost_s > give_up_s:
                raise
        time.sleep(wait_s)
        wait_s = min(LONGEST_WAIT_S, 2 * wait_s)
