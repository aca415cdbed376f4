"""Jobs in the store: submitted, listed, and moved from state to state, each change with its event."""

from __future__ import annotations

import base64
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

MOST_IN_A_PAGE = 1000


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


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """The conditions on the jobs that a list shows."""

    states: Sequence[JobState] = ()
    project: str | None = None
    user_name: str | None = None
    text: str = ""  # in the name, or a tag as name=value
    visible_to: int | None = None  # only this user's jobs; None: all


@dataclass(frozen=True)
class JobPage:
    """Jobs, newest first, and the mark from which the next page goes on."""

    jobs: tuple[StoredJob, ...]
    next: str | None
    total: int


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


def list_jobs(
    connection: sa.Connection, wanted: JobFilter, *, most: int = 50, after: str | None = None
) -> JobPage:
    """Return one page of the jobs that a filter lets through."""
    conditions = _conditions(wanted)
    total = connection.execute(
        sa.select(sa.func.count()).select_from(_joined()).where(*conditions)
    ).scalar_one()
    found = _select().where(*conditions).order_by(job.c.id.desc())
    if after is not None:
        found = found.where(job.c.id < _cursor(after))
    count = max(1, min(most, MOST_IN_A_PAGE))
    rows = connection.execute(found.limit(count + 1)).all()
    tags = _tags(connection, [row.id for row in rows[:count]])
    jobs = tuple(_stored(row, tags.get(row.id, {})) for row in rows[:count])
    return JobPage(jobs, _mark(jobs[-1].id) if len(rows) > count else None, int(total))


def _conditions(wanted: JobFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.states:
        conditions.append(job.c.state.in_(wanted.states))
    if wanted.project is not None:
        conditions.append(job.c.project == wanted.project)
    if wanted.user_name is not None:
        conditions.append(user.c.name == wanted.user_name)
    if wanted.visible_to is not None:
        conditions.append(job.c.user_id == wanted.visible_to)
    name, equals, value = wanted.text.partition("=")
    if equals:
        tagged = sa.select(tag.c.job_id).where(tag.c.name == name.strip(), tag.c.value == value.strip())
        conditions.append(job.c.id.in_(tagged))
    elif name.strip():
        conditions.append(job.c.name.icontains(name.strip(), autoescape=True))
    return conditions


def move_job(
    connection: sa.Connection, job_id: int, after: JobState, *, message: str | None = None, **changes: Any
) -> None:
    """Change the state of a job and tell of it; a change that cannot be is refused."""
    before = connection.execute(sa.select(job.c.state).where(job.c.id == job_id)).scalar_one()
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


def count_by_state(connection: sa.Connection, *, visible_to: int | None = None) -> dict[str, int]:
    """Return how many jobs are in each state."""
    found = sa.select(job.c.state, sa.func.count()).group_by(job.c.state)
    if visible_to is not None:
        found = found.where(job.c.user_id == visible_to)
    return {str(state): int(count) for state, count in connection.execute(found)}


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


def _mark(job_id: int) -> str:
    return base64.urlsafe_b64encode(str(job_id).encode()).decode().rstrip("=")


def _cursor(mark: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(mark + "=" * (-len(mark) % 4)))
    except ValueError:
        raise UsageError(
            f"a page must be asked for by the mark of the one before, got {mark[:40]!r}; begin anew"
        ) from None
