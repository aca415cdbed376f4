"""Events and the audit: what happened, for those who watch, and who did it, for those who ask later."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.store.tables import audit, event


@dataclass(frozen=True)
class StoredEvent:
    """One event; ids only grow."""

    id: int
    time_ms: int
    topic: str
    kind: str
    data: Any


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def add_event(connection: sa.Connection, topic: str, kind: str, **data: Any) -> None:
    """Notify the watchers of a topic of something that happened."""
    row = {"time_ms": now_ms(), "topic": topic, "kind": kind, "data": msgspec.json.encode(data).decode()}
    connection.execute(sa.insert(event), row)


def events_after(
    connection: sa.Connection, last_id: int, topics: Sequence[str] | None = None, most: int = 1000
) -> tuple[StoredEvent, ...]:
    """Return the events after one that was seen, oldest first; of all topics if none is named."""
    found = sa.select(event).where(event.c.id > last_id).order_by(event.c.id).limit(most)
    if topics is not None:
        found = found.where(event.c.topic.in_(topics))
    return tuple(
        StoredEvent(row.id, row.time_ms, row.topic, row.kind, msgspec.json.decode(row.data))
        for row in connection.execute(found)
    )


def newest_event(connection: sa.Connection) -> int:
    """Return the id of the newest event, 0 if there is none."""
    return int(connection.scalar(sa.select(sa.func.max(event.c.id))) or 0)


def add_audit(connection: sa.Connection, user_name: str, action: str, target: str, **detail: Any) -> None:
    """Record who did what."""
    row = {"time_ms": now_ms(), "user_name": user_name, "action": action, "target": target}
    connection.execute(sa.insert(audit), row | {"detail": msgspec.json.encode(detail).decode()})
