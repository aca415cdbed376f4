"""Retention: which ended jobs go, decided purely from their ages and sizes; then files and rows that nothing needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.snapshot import CodeSnapshot
from weft.jobs.lifecycle import ENDED
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import audit, dependency, event, job, snapshot
from weft.jobs.store.web_tables import delivery
from weft.text import format_size, plural

DAY_MS = 86_400_000
BLOB_AGE_MS = DAY_MS  # an upload that no snapshot names yet is younger than that
EVENT_DAYS = 30  # of which a stream may be resumed
AUDIT_DAYS = 400


@dataclass(frozen=True, kw_only=True)
class RetentionPolicy:
    """The bounds of what is kept; pinned jobs and those that others wait for always are."""

    days: int | None = None  # after the end of a job
    most_bytes: int | None = None  # of all jobs' files: the oldest go first

    def __post_init__(self) -> None:
        if self.days is not None and self.days < 1:
            raise UsageError(f"days must be at least 1, got {self.days}; leave it out to keep all")
        if self.most_bytes is not None and self.most_bytes < 0:
            raise UsageError(
                f"the most bytes must be at least 0, got {self.most_bytes}; leave it out to keep all"
            )


@dataclass(frozen=True)
class KeptJob:
    """An ended job that may go, with the size of its files."""

    id: int
    name: str
    ended_ms: int
    bytes: int


@dataclass(frozen=True)
class Removal:
    """A job that goes, and why."""

    job: KeptJob
    why: str


def plan_removals(
    jobs: Sequence[KeptJob], policy: RetentionPolicy, *, at_ms: int, other_bytes: int = 0
) -> tuple[Removal, ...]:
    """Return the jobs that go, oldest first; `other_bytes` are those of jobs that stay in any case."""
    oldest_first = sorted(jobs, key=lambda found: (found.ended_ms, found.id))
    removals: list[Removal] = []
    left = other_bytes + sum(found.bytes for found in jobs)
    for found in oldest_first:
        age_days = (at_ms - found.ended_ms) // DAY_MS
        if policy.days is not None and age_days >= policy.days:
            removals.append(Removal(found, f"it ended {plural(age_days, 'day')} ago"))
        elif policy.most_bytes is not None and left > policy.most_bytes:
            removals.append(Removal(found, f"all jobs have {format_size(left)} of files"))
        else:
            continue
        left -= found.bytes
    return tuple(removals)


def candidates(connection: sa.Connection, folder: Path) -> tuple[tuple[KeptJob, ...], int]:
    """Return the jobs that may go, and the bytes of all others."""
    needed = sa.select(dependency.c.after_id).join(job, job.c.id == dependency.c.job_id)
    needed = needed.where(job.c.state.not_in(ENDED))
    found = sa.select(job.c.id, job.c.name, job.c.ended_ms, job.c.state, job.c.pinned)
    waited_for = set(connection.scalars(needed))
    jobs, other = [], 0
    for row in connection.execute(found):
        size = folder_bytes(folder / "jobs" / str(row.id))
        if row.state in ENDED and not row.pinned and row.id not in waited_for and row.ended_ms is not None:
            jobs.append(KeptJob(row.id, row.name, row.ended_ms, size))
        else:
            other += size
    return tuple(jobs), other


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).lstat().st_size
            except OSError:  # it has just gone
                continue
    return total


def drop_old_rows(connection: sa.Connection, at_ms: int | None = None) -> None:
    """Forget old events, audit entries and deliveries, and snapshots that no job has."""
    at = now_ms() if at_ms is None else at_ms
    connection.execute(sa.delete(event).where(event.c.time_ms < at - EVENT_DAYS * DAY_MS))
    connection.execute(sa.delete(audit).where(audit.c.time_ms < at - AUDIT_DAYS * DAY_MS))
    done = sa.and_(delivery.c.state != "waiting", delivery.c.created_ms < at - EVENT_DAYS * DAY_MS)
    connection.execute(sa.delete(delivery).where(done))
    used = sa.select(job.c.snapshot).where(job.c.snapshot.is_not(None))
    old = snapshot.c.created_ms < at - BLOB_AGE_MS
    connection.execute(sa.delete(snapshot).where(old, snapshot.c.digest.not_in(used)))


def drop_blobs(connection: sa.Connection, blobs: BlobStore, at_ms: int | None = None) -> int:
    """Remove contents that no snapshot names; return their bytes.

    It is called in the database's writer, as adding a snapshot is, so that no content goes between the answer that it
    is there and the row that names it.
    """
    at = now_ms() if at_ms is None else at_ms
    named: set[str] = set()
    for text in connection.scalars(sa.select(snapshot.c.manifest)):
        named |= msgspec.json.decode(text, type=CodeSnapshot).blobs
    return sum(blobs.remove(digest) for digest in _old_blobs(blobs, at) if digest not in named)


def _old_blobs(blobs: BlobStore, at_ms: int) -> Iterable[str]:
    return [digest for digest, modified_ms in blobs.list() if modified_ms < at_ms - BLOB_AGE_MS]
