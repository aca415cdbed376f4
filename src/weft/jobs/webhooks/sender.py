"""The sender: takes due deliveries, sends each to a public address, and notes the answer or the next try."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weft.errors import WeftError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.store.database import Database
from weft.jobs.store.events import newest_event, now_ms
from weft.jobs.store.tables import job
from weft.jobs.store.web_tables import delivery, outbox, webhook
from weft.jobs.webhooks.messages import signed_headers, wait_ms
from weft.jobs.webhooks.outbox import MOST_AT_ONCE, fill

TIMEOUT_S = 10.0  # of one message, whatever the other side does
LOOK_S = 5.0  # between two looks when nothing is told
_CLAIM_MS = 60_000  # for which a delivery is this service's to send
_TOGETHER = 8


@dataclass(frozen=True)
class SendResult:
    """The result of one try."""

    status: int | None
    message: str | None

    @property
    def good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


Post = Callable[[str, dict[str, str], str], SendResult]


def post(url: str, headers: dict[str, str], body: str, allowed: Sequence[str] = ()) -> SendResult:
    """Send a message to a public address, or to one of the allowed networks. Blocks."""
    import httpx  # here, with what needs it: a service starts without

    from weft.serve.server.pictures.fetching import CheckedTransport

    deadline = time.monotonic() + TIMEOUT_S
    try:
        with (
            httpx.Client(
                transport=CheckedTransport(allowed, deadline), auth=httpx.Auth(), trust_env=False
            ) as client,
            client.stream("POST", url, headers=headers, content=body.encode()) as answer,
        ):
            good = 200 <= answer.status_code < 300
            return SendResult(answer.status_code, None if good else f"answered {answer.status_code}")
    except (WeftError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return SendResult(None, str(error)[:500] or type(error).__name__)
    except Exception as error:  # httpcore raises its own kinds
        return SendResult(None, f"{type(error).__name__}: {error}"[:500])


def notify_key(sealer: Sealer, user_id: int) -> str:
    """Return the key that signs messages to addresses in a user's specifications."""
    return sealer.derive(f"notify key of user {user_id}")


class WebhookSender:
    """Makes deliveries of events, and sends those that are due."""

    def __init__(
        self, database: Database, sealer: Sealer, *, root_url: str = "", send: Post | None = None,
        allowed: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._database, self._sealer, self._root_url = database, sealer, root_url
        self._send: Post = send or (lambda url, headers, body: post(url, headers, body, allowed))
        self._news = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send while the block runs."""
        loop = asyncio.get_running_loop()
        forget = self._database.on_commit(lambda: loop.call_soon_threadsafe(self._news.set))
        task = asyncio.create_task(self._run(), name="webhooks")
        try:
            yield
        finally:
            forget()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            with suppress(
                sa.exc.SQLAlchemyError
            ):  # the table cannot be read for a moment: the events stay there
                await self.look()
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            await asyncio.sleep(0.2)  # more events of the same moment

    async def look(self) -> int:
        """Make deliveries of new events, send those that are due, and return how many were sent."""
        # Asked first without a lock: most commits have nothing that webhooks are told of.
        if await self._database.read(_has_news):
            while await self._database.write(lambda c: fill(c, self._root_url)) == MOST_AT_ONCE:
                pass
        due = await self._database.read(_due)
        if due:
            await asyncio.gather(*(self._try(row) for row in due))
        return len(due)

    async def _try(self, row: Any) -> None:
        if not await self._database.write(lambda c: _claim(c, row)):
            return  # another service sends it
        key = await self._database.read(lambda c: self._key(c, row))
        headers = signed_headers(key, row.event, row.id, int(time.time()), row.body)
        result = await asyncio.to_thread(self._send, row.url, headers, row.body)
        await self._database.write(lambda c: _note(c, row.id, row.tries + 1, result))

    def _key(self, connection: sa.Connection, row: Any) -> str:
        if row.webhook_id is not None:
            sealed = connection.scalar(sa.select(webhook.c.sealed_key).where(webhook.c.id == row.webhook_id))
            return self._sealer.open(sealed or b"")
        owner = connection.scalar(sa.select(job.c.user_id).where(job.c.id == row.job_id))
        return notify_key(self._sealer, int(owner or 0))


def _has_news(connection: sa.Connection) -> bool:
    last = connection.scalar(sa.select(outbox.c.event_id))
    return last is None or newest_event(connection) > last


def _due(connection: sa.Connection) -> Sequence[Any]:
    found = sa.select(delivery).where(delivery.c.state == "waiting", delivery.c.next_ms <= now_ms())
    return connection.execute(found.order_by(delivery.c.next_ms).limit(_TOGETHER)).all()


def _claim(connection: sa.Connection, row: Any) -> bool:
    mine = sa.update(delivery).where(
        delivery.c.id == row.id, delivery.c.next_ms == row.next_ms, delivery.c.state == "waiting"
    )
    return connection.execute(mine.values(next_ms=now_ms() + _CLAIM_MS)).rowcount == 1


def _note(connection: sa.Connection, number: int, tries: int, result: SendResult) -> None:
    wait = None if result.good else wait_ms(tries)
    state = "delivered" if result.good else "failed" if wait is None else "waiting"
    values: dict[str, Any] = {
        "tries": tries,
        "status": result.status,
        "message": result.message,
        "state": state,
    }
    values["next_ms"] = None if wait is None else now_ms() + wait
    connection.execute(sa.update(delivery).where(delivery.c.id == number).values(values))
