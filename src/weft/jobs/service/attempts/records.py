"""Attempts in memory and in the store: what is known of one that runs, and the transactions that move it on.

Each transaction can be done again: who is killed before hearing of its commit changes nothing by repeating it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.lifecycle import NextStep, check_transition
from weft.jobs.service.index import KnownJob
from weft.jobs.store.attempts import AttemptShare, StoredAttempt, change_attempt, open_attempts
from weft.jobs.store.events import now_ms
from weft.jobs.store.jobs import StoredJob, move_job, need_job


@dataclass
class RunningAttempt:
    """One attempt that has not ended, as the dispatcher follows it."""

    known: KnownJob
    attempt: StoredAttempt
    task: asyncio.Task[None] | None = None  # a step that is being taken
    watched: bool = False  # its keeper lives, and its end will be told
    ended: bool = False  # its keeper is gone
    code: int | None = None  # its keeper's exit code, where it was a child of ours
    target: tuple[AttemptShare, ...] | None = None  # the size it was told to have, until it has it
    adoptions: list[float] = field(default_factory=list)  # times at which its keeper was replaced

    @property
    def id(self) -> int:
        return self.attempt.job_id


def held_meanwhile(before: Sequence[AttemptShare], after: Sequence[AttemptShare]) -> tuple[AttemptShare, ...]:
    """Return what a job holds while it changes its size: of each host the larger part."""
    parts = {share.host: share for share in before}
    for share in after:
        known = parts.get(share.host)
        if known is None or share.workers > known.workers:
            parts[share.host] = share
    return tuple(parts[host] for host in sorted(parts))


def begin_or_stop(connection: sa.Connection, running: RunningAttempt) -> None:
    """Say that a staged job starts, or end it if a user has stopped it meanwhile."""
    job = need_job(connection, running.id)
    if job.wanted == "stop":
        end_attempt(connection, job, running.attempt, None, NextStep("stopped", message="stopped on request"))
    else:
        move_if(connection, running.id, ("staging",), "starting")


def move_if(
    connection: sa.Connection, job_id: int, before: Sequence[str], after: Any, **changes: Any
) -> None:
    """Move a job unless that was done before the service was killed."""
    job = need_job(connection, job_id)
    if job.state in before:
        move_job(connection, job_id, after, **changes)


def end_attempt(
    connection: sa.Connection,
    known: StoredJob,
    attempt: StoredAttempt,
    outcome: Mapping[str, Any] | None,
    following: NextStep,
) -> None:
    """End an attempt and move its job on; done once, however often it is asked for."""
    job = need_job(connection, attempt.job_id)
    current = open_attempts(connection, attempt.job_id)
    if attempt.number not in {found.number for found in current}:
        return
    change_attempt(
        connection,
        attempt.job_id,
        attempt.number,
        ended_ms=now_ms(),
        outcome=dict(outcome) if outcome is not None else None,
        code=outcome.get("code") if outcome is not None else None,
        cause=following.cause,
        message=following.message,
    )
    if job.attempt != attempt.number:
        return
    changes: dict[str, Any] = {"cause": following.cause, "workers": 0, "wanted": None}
    if following.state == "queued":
        retried = following.cause is not None
        avoid = sorted({*msgspec.json.decode(job.avoid), *following.avoid})
        changes |= {
            "retries": job.retries + retried,
            "not_before_ms": now_ms() + round(following.wait_s * 1000),
            "avoid": msgspec.json.encode(avoid).decode(),
        }
    if following.state == "storing" and job.state == "starting":
        move_job(connection, job.id, "running")
        job = replace(job, state="running")
    check_transition(job.state, following.state)
    move_job(connection, job.id, following.state, message=following.message, **changes)
