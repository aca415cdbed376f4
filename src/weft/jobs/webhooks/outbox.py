"""The outbox: deliveries are made of events, each once, even if the service dies between two of them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from weft.jobs.store.events import StoredEvent, events_after, newest_event, now_ms
from weft.jobs.store.jobs import spec_of
from weft.jobs.store.tables import job, user
from weft.jobs.store.web_tables import delivery, outbox, webhook
from weft.jobs.webhooks.messages import event_of, job_of, message, once_key

_NAME = "webhooks"
MOST_AT_ONCE = 500


def fill(connection: sa.Connection, root_url: str) -> int:
    """Make the deliveries of the events since the last time; return how many events there were."""
    position = sa.select(outbox.c.event_id).where(outbox.c.name == _NAME).with_for_update()
    last = connection.scalar(position)
    if last is None:  # the first start: what was before is nobody's news
        row = {"name": _NAME, "event_id": newest_event(connection)}
        connection.execute(sa.insert(outbox), row)
        return 0
    found = events_after(connection, last, None, MOST_AT_ONCE)
    for event in found:
        word, number = event_of(event), job_of(event)
        if word is not None and number is not None:
            _deliver(connection, word, number, event, root_url)
    if found:
        moved = sa.update(outbox).where(outbox.c.name == _NAME)
        connection.execute(moved.values(event_id=found[-1].id))
    return len(found)


def _deliver(connection: sa.Connection, word: str, number: int, event: StoredEvent, root_url: str) -> None:
    named = ("id", "name", "project", "state", "cause", "message", "attempt", "user_id")
    columns = [job.c[name] for name in named]
    found = sa.select(*columns, user.c.name.label("user")).join(user, user.c.id == job.c.user_id)
    row = connection.execute(found.where(job.c.id == number)).one_or_none()
    if row is None:
        return
    shown = {name: value for name, value in row._mapping.items() if name != "user_id"}
    body = message(word, event, shown, root_url)
    for webhook_id, url in _addresses(connection, word, row):
        add_delivery(
            connection, url, word, body, webhook_id=webhook_id, job_id=number,
            once=once_key(event.id, webhook_id, url),
        )  # fmt: skip


def _addresses(connection: sa.Connection, word: str, row: Any) -> list[tuple[int | None, str]]:
    """Return the addresses that get messages about an event: those of the job's specification, and webhooks."""
    addresses: list[tuple[int | None, str]] = [
        (None, one.webhook) for one in spec_of(connection, row.id).notify if word in one.on
    ]
    hooks = sa.select(webhook, user.c.role).join(user, user.c.id == webhook.c.user_id)
    for hook in connection.execute(hooks.where(webhook.c.active.is_(True), user.c.disabled.is_(False))):
        theirs = hook.user_id == row.user_id or hook.role == "admin"
        if theirs and word in hook.events.split(",") and hook.project in (None, row.project):
            addresses.append((hook.id, hook.url))
    return addresses


def add_delivery(
    connection: sa.Connection,
    url: str,
    word: str,
    body: str,
    *,
    webhook_id: int | None = None,
    job_id: int | None = None,
    once: str | None = None,
) -> int | None:
    """Note a message that shall be sent; None if it was noted before."""
    if once is not None:
        known = sa.select(delivery.c.id).where(delivery.c.once == once)
        if connection.scalar(known) is not None:
            return None
    at = now_ms()
    row = {"url": url, "event": word, "body": body, "webhook_id": webhook_id, "job_id": job_id, "once": once,
           "state": "waiting", "created_ms": at, "next_ms": at}  # fmt: skip
    return int(connection.execute(sa.insert(delivery).values(row).returning(delivery.c.id)).scalar_one())
