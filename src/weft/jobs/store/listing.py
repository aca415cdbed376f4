"""Lists of jobs: filtered, sorted, in pages that go on after the last job seen, with counts by state."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.lifecycle import JobState
from weft.jobs.store.jobs import StoredJob, load_jobs
from weft.jobs.store.tables import job, tag, user

MOST_IN_A_PAGE = 1000
_LARGEST_ID = 2**53
_SORTS: Mapping[str, Any] = {
    "id": job.c.id,
    "created": job.c.created_ms,
    "started": sa.func.coalesce(job.c.started_ms, 0),
    "ended": sa.func.coalesce(job.c.ended_ms, 0),
    "name": job.c.name,
    "project": job.c.project,
    "queue": job.c.queue,
    "priority": job.c.priority,
    "state": job.c.state,
}
_MARK = msgspec.json.Decoder(tuple[int | str, int])


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """The conditions on the jobs that a list shows."""

    states: Sequence[JobState] = ()
    project: str | None = None
    user_name: str | None = None
    text: str = ""  # in the name or a tag's value, an id, or a tag as name=value
    visible_to: int | None = None  # only this user's jobs; None: all


@dataclass(frozen=True)
class JobPage:
    """Jobs, the mark from which the next page goes on, and how many there are."""

    jobs: tuple[StoredJob, ...]
    next: str | None
    total: int
    counts: Mapping[str, int]  # by state, of jobs that the other conditions let through


def list_jobs(
    connection: sa.Connection,
    wanted: JobFilter,
    *,
    most: int = 50,
    after: str | None = None,
    sort: str = "-id",
) -> JobPage:
    """Return one page of the jobs that a filter lets through; `sort` names a column, with - the largest first."""
    counts = count_by_state(connection, wanted)
    column, falls = _SORTS[sort.removeprefix("-")], sort.startswith("-")
    found = sa.select(job.c.id, column.label("value")).where(*_conditions(connection, wanted))
    found = found.order_by(*((column.desc(), job.c.id.desc()) if falls else (column, job.c.id)))
    if after is not None:
        found = found.where(_beyond(column, falls, _cursor(after)))
    count = max(1, min(most, MOST_IN_A_PAGE))
    rows = connection.execute(found.limit(count + 1)).all()
    jobs = load_jobs(connection, [row.id for row in rows[:count]])
    last = rows[count - 1] if len(rows) > count else None
    total = sum(number for state, number in counts.items() if not wanted.states or state in wanted.states)
    return JobPage(jobs, _mark(last.value, last.id) if last is not None else None, total, counts)


def count_by_state(connection: sa.Connection, wanted: JobFilter | None = None) -> dict[str, int]:
    """Return how many jobs are in each state, of those that the other conditions of a filter let through."""
    conditions = _conditions(connection, replace(wanted or JobFilter(), states=()))
    found = sa.select(job.c.state, sa.func.count()).where(*conditions).group_by(job.c.state)
    return {str(state): int(count) for state, count in connection.execute(found)}


def _conditions(connection: sa.Connection, wanted: JobFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.states:
        conditions.append(job.c.state.in_(wanted.states))
    if wanted.project is not None:
        conditions.append(job.c.project == wanted.project)
    if wanted.user_name is not None:
        # Not a join: lists read one index alone.
        named = sa.select(user.c.id).where(user.c.name == wanted.user_name)
        conditions.append(job.c.user_id == named.scalar_subquery())
    if wanted.visible_to is not None:
        conditions.append(job.c.user_id == wanted.visible_to)
    if wanted.text.strip():
        conditions.append(_matching(connection, wanted.text.strip()))
    return conditions


def _matching(connection: sa.Connection, text: str) -> sa.ColumnElement[bool]:
    name, equals, value = text.partition("=")
    if equals:
        tagged = sa.select(tag.c.job_id).where(tag.c.name == name.strip(), tag.c.value == value.strip())
        return job.c.id.in_(tagged)
    tagged = sa.select(tag.c.job_id).where(_holds(connection, tag.c.value, text))
    either = [_holds(connection, job.c.name, text), job.c.id.in_(tagged)]
    if text.isascii() and text.isdecimal() and int(text) < _LARGEST_ID:
        either.append(job.c.id == int(text))
    return sa.or_(*either)


def _holds(connection: sa.Connection, column: Any, text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column holds a text in either case, which SQLite's LIKE means by itself."""
    if connection.dialect.name == "sqlite":
        return cast("sa.ColumnElement[bool]", column.contains(text, autoescape=True))
    return cast("sa.ColumnElement[bool]", column.icontains(text, autoescape=True))


def _beyond(column: Any, falls: bool, mark: tuple[int | str, int]) -> sa.ColumnElement[bool]:
    """Return the condition that a job comes after another in the order of a list."""
    value, number = mark
    if falls:
        return sa.or_(column < value, sa.and_(column == value, job.c.id < number))
    return sa.or_(column > value, sa.and_(column == value, job.c.id > number))


def _mark(value: int | str, number: int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((value, number))).decode().rstrip("=")


def _cursor(mark: str) -> tuple[int | str, int]:
    try:
        value, number = _MARK.decode(base64.urlsafe_b64decode(mark + "=" * (-len(mark) % 4)))
        if abs(number) > _LARGEST_ID or (isinstance(value, int) and abs(value) > _LARGEST_ID):
            raise ValueError("too large")
    except ValueError:
        raise UsageError(
            f"a page must be asked for by the mark of the one before, got {mark[:40]!r}; begin anew"
        ) from None
    return value, number
