"""Webhooks of the caller, and what was sent to them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.accounts import (
    DeliveriesAnswer,
    DeliveryView,
    NewWebhook,
    NewWebhookAnswer,
    WebhookChanges,
    WebhooksAnswer,
    WebhookView,
)
from weft.jobs.store.events import now_ms
from weft.jobs.store.web_tables import delivery, webhook
from weft.jobs.webhooks.outbox import add_delivery
from weft.jobs.webhooks.sender import notify_key

MOST_WEBHOOKS = 50  # of one user
MOST_DELIVERIES = 100


def _shown(row: Any) -> WebhookView:
    events = tuple(word for word in row.events.split(",") if word)
    return WebhookView(row.id, row.url, events, row.project, row.active, row.created_ms)


async def list_all(call: ApiCall) -> WebhooksAnswer:
    found = sa.select(webhook).where(webhook.c.user_id == call.identity.user_id).order_by(webhook.c.id)
    rows = await call.database.read(lambda c: c.execute(found).all())
    return WebhooksAnswer(tuple(map(_shown, rows)), notify_key(call.state.sealer, call.identity.user_id))


async def add(call: ApiCall) -> NewWebhookAnswer:
    from weft.serve.server.pictures.fetching import (  # with httpx, without which a service starts
        checked_url,
        is_public_host,
    )

    body: NewWebhook = call.body
    address = checked_url(body.url)
    if not is_public_host(address.host, call.state.private_webhooks):
        raise ApiRefusal(
            422,
            f"url must point to a public address, got {address.host}; "
            "weft up --private-webhooks NETWORK allows a private one",
        )
    if address.userinfo:
        raise ApiRefusal(422, "url must be without a password, got one; the message is signed instead")
    key = secrets.token_urlsafe(32)
    row = {
        "user_id": call.identity.user_id,
        "url": body.url,
        "events": ",".join(dict.fromkeys(body.events)),
        "project": body.project,
        "sealed_key": call.state.sealer.seal(key),
        "created_ms": now_ms(),
    }

    def work(connection: sa.Connection) -> WebhookView:
        mine = sa.select(sa.func.count()).where(webhook.c.user_id == call.identity.user_id)
        if int(connection.scalar(mine) or 0) >= MOST_WEBHOOKS:
            raise ApiRefusal(409, f"a user must have at most {MOST_WEBHOOKS} webhooks; remove some")
        made = connection.execute(sa.insert(webhook).values(row).returning(webhook.c.id)).scalar_one()
        return _shown(connection.execute(sa.select(webhook).where(webhook.c.id == made)).one())

    return NewWebhookAnswer(await call.database.write(work), key)


async def _own(call: ApiCall) -> Any:
    number = int(call.path["webhook"])
    found = sa.select(webhook).where(webhook.c.id == number, webhook.c.user_id == call.identity.user_id)
    row = await call.database.read(lambda c: c.execute(found).one_or_none())
    if row is None:
        raise not_found("the webhook")
    return row


async def change(call: ApiCall) -> WebhookView:
    body: WebhookChanges = call.body
    row = await _own(call)
    values: dict[str, Any] = {}
    if body.events is not msgspec.UNSET:
        values["events"] = ",".join(dict.fromkeys(body.events))
    if body.active is not msgspec.UNSET:
        values["active"] = body.active
    if values:
        changed = sa.update(webhook).where(webhook.c.id == row.id).values(values)
        await call.database.write(lambda c: c.execute(changed))
    return _shown(await _own(call))


async def remove(call: ApiCall) -> None:
    row = await _own(call)
    await call.database.write(lambda c: c.execute(sa.delete(webhook).where(webhook.c.id == row.id)))


async def test(call: ApiCall) -> DeliveryView:
    row = await _own(call)
    body = msgspec.json.encode({"event": "hello", "time_ms": now_ms(), "url": call.state.root_url}).decode()

    def work(connection: sa.Connection) -> Any:
        number = add_delivery(connection, row.url, "hello", body, webhook_id=row.id)
        return connection.execute(sa.select(delivery).where(delivery.c.id == number)).one()

    return _delivery(await call.database.write(work))


async def list_deliveries(call: ApiCall) -> DeliveriesAnswer:
    row = await _own(call)
    found = sa.select(delivery).where(delivery.c.webhook_id == row.id).order_by(delivery.c.id.desc())
    rows = await call.database.read(lambda c: c.execute(found.limit(MOST_DELIVERIES)).all())
    return DeliveriesAnswer(tuple(map(_delivery, rows)))


def _delivery(row: Any) -> DeliveryView:
    return DeliveryView(
        row.id, row.webhook_id, row.url, row.event, row.job_id, row.state, row.tries, row.status, row.message,
        row.created_ms, row.next_ms,
    )  # fmt: skip


HANDLERS: Mapping[str, Handler] = {
    "list_webhooks": list_all,
    "add_webhook": add,
    "change_webhook": change,
    "remove_webhook": remove,
    "test_webhook": test,
    "list_deliveries": list_deliveries,
}
