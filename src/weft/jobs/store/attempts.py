"""Attempts in the store: each start of a job, with its hosts, its keeper's process and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.tables import attempt


class AttemptShare(msgspec.Struct, frozen=True):
    """The part of one host that an attempt has: workers, and the processors and accelerators that are theirs."""

    host: str
    workers: int
    cpus: tuple[int, ...] = ()  # logical processors, as the kernel numbers them
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoredAttempt:
    """One start of a job as the store knows it."""

    job_id: int
    number: int
    run_dir: str
    shares: tuple[AttemptShare, ...]
    token: str
    asked: str | None
    asked_ms: int | None
    keeper_host: str | None
    keeper_pid: int | None
    keeper_started: int | None
    boot_id: str | None
    started_ms: int
    ended_ms: int | None
    outcome: dict[str, Any] | None
    code: int | None
    cause: str | None
    message: str | None

    @property
    def workers(self) -> int:
        return sum(share.workers for share in self.shares)


_SHARES = msgspec.json.Decoder(tuple[AttemptShare, ...])


def add_attempt(
    connection: sa.Connection,
    job_id: int,
    number: int,
    *,
    run_dir: str,
    shares: tuple[AttemptShare, ...],
    token: str,
    keeper_host: str,
    boot_id: str,
) -> None:
    """Record a start before anything is started."""
    row = {
        "job_id": job_id,
        "number": number,
        "run_dir": run_dir,
        "allocation": msgspec.json.encode(shares).decode(),
        "token": token,
        "keeper_host": keeper_host,
        "boot_id": boot_id,
        "started_ms": now_ms(),
    }
    connection.execute(sa.insert(attempt), row)
    hosts = {share.host: share.workers for share in shares}
    add_event(connection, f"job:{job_id}", "attempt", job=job_id, number=number, hosts=hosts)


def change_attempt(connection: sa.Connection, job_id: int, number: int, **changes: Any) -> None:
    """Change columns of an attempt."""
    if "shares" in changes:
        changes["allocation"] = msgspec.json.encode(changes.pop("shares")).decode()
    if "outcome" in changes and changes["outcome"] is not None:
        changes["outcome"] = msgspec.json.encode(changes["outcome"]).decode()
    where = sa.and_(attempt.c.job_id == job_id, attempt.c.number == number)
    connection.execute(sa.update(attempt).where(where).values(changes))


def attempts_of(connection: sa.Connection, job_id: int) -> tuple[StoredAttempt, ...]:
    """Return all attempts of a job, oldest first."""
    rows = connection.execute(sa.select(attempt).where(attempt.c.job_id == job_id).order_by(attempt.c.number))
    return tuple(map(_stored, rows))


def open_attempts(connection: sa.Connection, job_id: int | None = None) -> tuple[StoredAttempt, ...]:
    """Return the attempts that have not ended, of one job or of all."""
    found = sa.select(attempt).where(attempt.c.ended_ms.is_(None)).order_by(attempt.c.id)
    if job_id is not None:
        found = found.where(attempt.c.job_id == job_id)
    return tuple(map(_stored, connection.execute(found)))


def _stored(row: Any) -> StoredAttempt:
    values = dict(row._mapping)
    values.pop("id")
    values["shares"] = _SHARES.decode(values.pop("allocation"))
    values["outcome"] = msgspec.json.decode(values["outcome"]) if values["outcome"] else None
    return StoredAttempt(**values)
