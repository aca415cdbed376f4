"""Requests that are sent again: an Idempotency-Key makes the second one get the answer of the first."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import sqlalchemy as sa
from starlette.responses import Response

from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.operations import ApiOperation
from weft.jobs.api.state import ApiCall
from weft.jobs.store.events import now_ms
from weft.jobs.store.web_tables import idempotency

KEPT_MS = 86_400_000
_BUSY_MS = 300_000  # after which a request that has no answer yet is taken to have died with its service
_LONGEST_KEY = 200


async def answer_once(
    call: ApiCall, one: ApiOperation, key: str, raw: bytes, answer: Callable[[], Awaitable[Response]]
) -> Response:
    """Answer a request, or repeat the answer to one with the same key; a failure may be tried again."""
    if len(key) > _LONGEST_KEY or not key.isprintable():
        raise ApiRefusal(422, f"an Idempotency-Key must be at most {_LONGEST_KEY} printable characters")
    user_id = call.identity.user_id
    digest = hashlib.sha256(f"{one.name} {call.request.url.path} ".encode() + raw).hexdigest()
    known = await call.database.write(lambda c: _claim(c, user_id, key, digest))
    if known is not None:
        return _repeated(known, digest)
    try:
        response = await answer()
    except BaseException:
        await call.database.write(lambda c: c.execute(sa.delete(idempotency).where(_mine(user_id, key))))
        raise
    # Compressed or not, the answer is kept as it was sent: the same client asks again.
    done = {"status": response.status_code, "answer": bytes(response.body)}
    await call.database.write(
        lambda c: c.execute(sa.update(idempotency).where(_mine(user_id, key)).values(done))
    )
    return response


def _mine(user_id: int, key: str) -> sa.ColumnElement[bool]:
    return sa.and_(idempotency.c.user_id == user_id, idempotency.c.key == key)


def _claim(
    connection: sa.Connection, user_id: int, key: str, digest: str
) -> sa.Row[tuple[object, ...]] | None:
    """Return the row of an earlier request with this key; None: this one is the first, and is noted."""
    at = now_ms()
    connection.execute(sa.delete(idempotency).where(idempotency.c.created_ms < at - KEPT_MS))
    stale = sa.and_(idempotency.c.status == 0, idempotency.c.created_ms < at - _BUSY_MS)
    connection.execute(sa.delete(idempotency).where(_mine(user_id, key), stale))
    known = connection.execute(sa.select(idempotency).where(_mine(user_id, key))).one_or_none()
    if known is None:
        row = {"user_id": user_id, "key": key, "digest": digest, "status": 0, "answer": b"", "created_ms": at}
        connection.execute(sa.insert(idempotency), row)
    return known


def _repeated(known: sa.Row[tuple[object, ...]], digest: str) -> Response:
    if known.digest != digest:
        raise ApiRefusal(
            422, "an Idempotency-Key must be used for one request, got another with the same key"
        )
    if known.status == 0:
        raise ApiRefusal(409, "the request with this key must be done first; try again", retry_after_s=1)
    body: bytes = known.answer
    headers = {"cache-control": "no-store", "idempotent-replay": "true"}
    if body[:2] == b"\x1f\x8b":
        headers["content-encoding"] = "gzip"
    return Response(body, known.status, headers, "application/json")
