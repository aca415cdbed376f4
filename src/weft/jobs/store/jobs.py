"""Jobs in the store: submitted, found, and moved from state to state, each change with its event."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.lifecycle import ENDED, JobState, check_transition
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import ResolvedSpec
from weft.jobs.store.events import add_audit, add_event, now_ms
from weft.jobs.store.tables import dependency, job, tag, user


class JobNotFound(UsageError, LookupError):  # noqa: N818 (the name of the answer: 404)
    """A job that is not there, or that the user may not see."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"a job must exist, got job {job_id}; see weft jobs")


@dataclass(frozen=True)
class StoredJob:
    """One job as the store knows it."""

    id: int
    name: str
    project: str
    user_id: int
    user_name: str
    kind: str
    state: JobState
    wanted: str | None
    queue: str
    priority: int
    snapshot: str | None
    attempt: int
    retries: int
    avoid: str  # JSON: hosts on which it failed
    workers: int
    min_workers: int
    max_workers: int
    workers_limit: int | None
    progress: float | None
    cause: str | None
    message: str | None
    not_before_ms: int
    created_ms: int
    queued_ms: int
    started_ms: int | None
    ended_ms: int | None
    pinned: bool
    parent_id: int | None
    tags: Mapping[str, str]


def submit_job(
    connection: sa.Connection,
    resolved: ResolvedSpec,
    *,
    user_id: int,
    user_name: str,
    snapshot: str | None = None,
    parent_id: int | None = None,
    kind: str = "run",
    not_before_ms: int = 0,
) -> int:
    """Queue a job, or hold it if its specification says so; return its id."""
    spec, at = resolved.spec, now_ms()
    _check_dependencies(connection, spec)
    state: JobState = "held" if spec.queue.hold else "queued"
    row = {
        "name": resolved.name,
        "project": spec.project,
        "user_id": user_id,
        "kind": kind,
        "state": state,
        "queue": spec.queue.name,
        "priority": spec.queue.priority,
        "spec": msgspec.json.encode(spec).decode(),
        "snapshot": snapshot,
        "created_ms": at,
        "queued_ms": at,
        "not_before_ms": not_before_ms,
        "parent_id": parent_id,
        "min_workers": resolved.min_workers,
        "max_workers": resolved.max_workers,
    }
    job_id = int(connection.execute(sa.insert(job).values(row).returning(job.c.id)).scalar_one())
    if spec.tags:
        connection.execute(
            sa.insert(tag), [{"job_id": job_id, "name": n, "value": v} for n, v in spec.tags.items()]
        )
    if spec.queue.after:
        connection.execute(
            sa.insert(dependency), [{"job_id": job_id, "after_id": int(o)} for o in spec.queue.after]
        )
    add_event(connection, "jobs", "submitted", job=job_id, name=resolved.name, state=state, user=user_name)
    add_audit(connection, user_name, "submit", f"job {job_id}", name=resolved.name)
    return job_id


def _check_dependencies(connection: sa.Connection, spec: JobSpec) -> None:
    wanted = [text for text in spec.queue.after if not str(text).isdecimal()]
    numbers = {int(number) for number in spec.queue.after if str(number).isdecimal()}
    known = set(connection.scalars(sa.select(job.c.id).where(job.c.id.in_(numbers)))) if numbers else set()
    missing = [*wanted, *(str(number) for number in sorted(numbers - known))]
    if missing:
        raise UsageError(
            f"queue.after must name jobs that exist, got {', '.join(map(str, missing))}; see weft jobs"
        )


def find_job(connection: sa.Connection, job_id: int, *, visible_to: int | None = None) -> StoredJob | None:
    """Return a job; None if there is none, or it is not one that the user may see."""
    found = _select().where(job.c.id == job_id)
    if visible_to is not None:
        found = found.where(job.c.user_id == visible_to)
    row = connection.execute(found).one_or_none()
    return _stored(row, _tags(connection, [job_id]).get(job_id, {})) if row is not None else None


def need_job(connection: sa.Connection, job_id: int, *, visible_to: int | None = None) -> StoredJob:
    """Return a job; JobNotFound if there is none for this user."""
    found = find_job(connection, job_id, visible_to=visible_to)
    if found is None:
        raise JobNotFound(job_id)
    return found


def jobs_in(
    connection: sa.Connection, *, ids: Sequence[int] | None = None, states: Collection[str] = ()
) -> list[tuple[StoredJob, JobSpec]]:
    """Return jobs with their specifications, by id or by state; tags are left out."""
    rows = sa.select(*job.c, user.c.name.label("user_name")).select_from(_joined())
    rows = rows.where(job.c.id.in_(ids)) if ids is not None else rows.where(job.c.state.in_(states))
    found = []
    for row in connection.execute(rows.order_by(job.c.id)):
        values = dict(row._mapping)
        found.append((msgspec.json.decode(values.pop("spec"), type=JobSpec), values))
    return [(StoredJob(**values, tags={}), spec) for spec, values in found]


def dependencies_of(
    connection: sa.Connection, jobs: Sequence[int] | None = None
) -> dict[int, dict[int, JobState | None]]:
    """Return the jobs that others wait for, with their states; of some jobs or of all that have not ended."""
    other = job.alias()
    found = sa.select(dependency.c.job_id, dependency.c.after_id, other.c.state).select_from(
        dependency.join(other, other.c.id == dependency.c.after_id, isouter=True)
    )
    if jobs is None:
        found = found.join(job, job.c.id == dependency.c.job_id).where(job.c.state.not_in(ENDED))
    else:
        found = found.where(dependency.c.job_id.in_(jobs))
    after: dict[int, dict[int, JobState | None]] = {}
    for job_id, other_id, state in connection.execute(found):
        after.setdefault(job_id, {})[other_id] = state
    return after


def waiting_for(connection: sa.Connection, jobs: Sequence[int]) -> tuple[int, ...]:
    """Return the jobs that must wait for some to complete."""
    found = sa.select(dependency.c.job_id).where(dependency.c.after_id.in_(jobs)).distinct()
    return tuple(connection.scalars(found))


def change_job(connection: sa.Connection, job_id: int, **changes: Any) -> None:
    """Change columns of a job that are not its state, and tell of it."""
    connection.execute(sa.update(job).where(job.c.id == job_id).values(changes))
    for topic in ("jobs", f"job:{job_id}"):
        add_event(connection, topic, "changed", job=job_id, **changes)


def spec_of(connection: sa.Connection, job_id: int) -> JobSpec:
    """Return the specification of a job."""
    return msgspec.json.decode(
        connection.execute(sa.select(job.c.spec).where(job.c.id == job_id)).scalar_one(), type=JobSpec
    )


def load_jobs(connection: sa.Connection, ids: Sequence[int]) -> tuple[StoredJob, ...]:
    """Return jobs in the order of their ids; those that are gone are left out."""
    rows = {row.id: row for row in connection.execute(_select().where(job.c.id.in_(ids)))} if ids else {}
    tags = _tags(connection, list(rows))
    return tuple(_stored(rows[number], tags.get(number, {})) for number in ids if number in rows)


def move_job(
    connection: sa.Connection, job_id: int, after: JobState, *, message: str | None = None, **changes: Any
) -> None:
    """Change the state of a job and tell of it; a change that cannot be is refused."""
    # Locked, so that of two services that move a job at once the second sees what the first has done.
    found = sa.select(job.c.state).where(job.c.id == job_id).with_for_update()
    before = connection.execute(found).scalar_one()
    check_transition(before, after)
    at = now_ms()
    values: dict[str, Any] = {"state": after, "message": message, **changes}
    if after == "queued":
        values |= {"queued_ms": at, "ended_ms": None, "wanted": None}
    if after == "running":
        values["started_ms"] = sa.func.coalesce(job.c.started_ms, at)
    if after in ENDED:
        values |= {"ended_ms": at, "workers": 0, "wanted": None}
    connection.execute(sa.update(job).where(job.c.id == job_id).values(values))
    for topic in ("jobs", f"job:{job_id}"):
        add_event(connection, topic, "state", job=job_id, before=before, state=after, message=message)


def _joined() -> sa.Join:
    return job.join(user, user.c.id == job.c.user_id)


def _select() -> sa.Select[Any]:
    columns = [column for column in job.c if column.name != "spec"]
    return sa.select(*columns, user.c.name.label("user_name")).select_from(_joined())


def _stored(row: Any, tags: Mapping[str, str]) -> StoredJob:
    return StoredJob(**row._mapping, tags=tags)


def _tags(connection: sa.Connection, jobs: Sequence[int]) -> dict[int, dict[str, str]]:
    tags: dict[int, dict[str, str]] = {}
    if jobs:
        for row in connection.execute(sa.select(tag).where(tag.c.job_id.in_(jobs)).order_by(tag.c.name)):
            tags.setdefault(row.job_id, {})[row.name] = row.value
    return tags
