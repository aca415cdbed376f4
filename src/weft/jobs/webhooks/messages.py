"""Messages to webhooks: which events are told, in which words, and how a message is signed. All pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.jobs.lifecycle import ACTIVE
from weft.jobs.store.events import StoredEvent

TRIES = 8
_FIRST_WAIT_MS = 10_000
_LONGEST_WAIT_MS = 2 * 3_600_000
_BY_STATE: Mapping[str, str] = {
    "running": "started",
    "completed": "completed",
    "failed": "failed",
    "stopped": "stopped",
    "paused": "paused",
}


def event_of(event: StoredEvent) -> str | None:
    """Return the word that specifications and webhooks have for an event of a job; None for all others."""
    if event.kind == "finding" and event.topic.startswith("job:"):
        return "advice"
    if event.topic != "jobs" or event.kind != "state":
        return None
    after, before = event.data.get("state"), event.data.get("before")
    if after == "queued" and before in ACTIVE:
        return "retried"
    return _BY_STATE.get(str(after))


def job_of(event: StoredEvent) -> int | None:
    """Return the number of the job that an event is about."""
    number = event.data.get("job")
    if number is None and event.topic.startswith("job:"):
        number = event.topic.removeprefix("job:")
    return int(number) if number is not None else None


def message(word: str, event: StoredEvent, job: Mapping[str, Any], root_url: str) -> str:
    """Return the body of a message."""
    told = {"event": word, "time_ms": event.time_ms, "job": dict(job), "data": event.data}
    return msgspec.json.encode(told | {"url": f"{root_url}/jobs/{job['id']}"}).decode()


def once_key(event_id: int, webhook_id: int | None, url: str) -> str:
    """Return what makes a delivery the same as another."""
    place = hashlib.sha256(url.encode()).hexdigest()[:32]
    return f"{event_id}:{webhook_id or 'spec'}:{place}"


def signed_headers(key: str, word: str, delivery_id: int, time_s: int, body: str) -> dict[str, str]:
    """Return the headers of a message; the time is signed, too, so that a message cannot be sent again later."""
    made = hmac.digest(key.encode(), f"{time_s}.{body}".encode(), "sha256").hex()
    return {
        "content-type": "application/json",
        "user-agent": "weft",
        "x-weft-event": word,
        "x-weft-delivery": str(delivery_id),
        "x-weft-timestamp": str(time_s),
        "x-weft-signature": f"sha256={made}",
    }


def wait_ms(tries: int) -> int | None:
    """Return how long to wait after a number of failures; None: that was the last try."""
    if tries >= TRIES:
        return None
    return min(_LONGEST_WAIT_MS, _FIRST_WAIT_MS << 2 * (tries - 1))
