"""Jobs: listed, submitted, shown, changed, removed, and acted on."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.jobs import (
    CloneBody,
    HostShare,
    JobChanges,
    JobDetail,
    JobNameUse,
    JobsAnswer,
    JobsQuery,
    JobView,
    PlannedJob,
    ProjectsAnswer,
    QueuesAnswer,
    QueueView,
    ScaleBody,
    Submission,
    SubmitAnswer,
)
from weft.jobs.api.views import (
    find,
    find_own,
    findings_of,
    job_fields,
    show_attempt,
    show_jobs,
    show_metric,
)
from weft.jobs.code.environment import read_environment
from weft.jobs.lifecycle import ACTIVE, STATES, WAITING, JobState, StateError
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import convert_spec, expand, read_spec, resolve
from weft.jobs.store.attempts import attempts_of
from weft.jobs.store.events import add_event
from weft.jobs.store.jobs import StoredJob, load_jobs, spec_of
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.store.metrics import summaries
from weft.jobs.store.tables import dependency, job, param, tag

_MOST_OF_A_QUEUE = 100


async def list_all(call: ApiCall) -> JobsAnswer:
    query: JobsQuery = call.query
    wanted = JobFilter(
        states=_states(query.state),
        project=query.project,
        user_name=query.user,
        text=query.q or "",
        visible_to=call.identity.visible_to,
    )
    page = await call.database.read(
        lambda c: list_jobs(c, wanted, most=query.limit, after=query.cursor, sort=query.sort)
    )
    return JobsAnswer(await show_jobs(call, page.jobs), page.next, page.total, dict(page.counts))


def _states(text: str | None) -> tuple[JobState, ...]:
    words = [word for word in (text or "").split(",") if word]
    unknown = [word for word in words if word not in STATES]
    if unknown:
        raise ApiRefusal(422, f"state must be among {', '.join(STATES)}, got {unknown[0]!r}")
    return tuple(state for state in STATES if state in words)


async def submit(call: ApiCall) -> SubmitAnswer:
    body: Submission = call.body
    spec = _spec(body)
    numbers = await call.state.jobs.submit(
        spec,
        user_id=call.identity.user_id,
        user_name=call.identity.name,
        snapshot=body.snapshot,
        dry_run=body.dry_run,
    )
    if body.dry_run:
        return SubmitAnswer((), tuple(map(_planned, expand(spec))), call.state.jobs.notes(spec))
    return SubmitAnswer(await _views_of(call, numbers), notes=call.state.jobs.notes(spec))


def _spec(body: Submission) -> JobSpec:
    if (body.spec is None) == (body.yaml is None):
        raise ApiRefusal(422, "a submission must have spec or yaml, got both or none; send one of them")
    return convert_spec(body.spec) if body.spec is not None else read_spec(body.yaml or "")


def _planned(spec: JobSpec) -> PlannedJob:
    resolved = resolve(spec)
    return PlannedJob(resolved.name, _command(spec), resolved.min_workers, resolved.max_workers, spec)


def _command(spec: JobSpec) -> str:
    return spec.run if isinstance(spec.run, str) else shlex.join(spec.run)


async def _views_of(call: ApiCall, numbers: tuple[int, ...]) -> tuple[JobView, ...]:
    return await show_jobs(call, await call.database.read(lambda c: load_jobs(c, numbers)))


async def show(call: ApiCall) -> JobDetail:
    found = await find(call)
    rest = await call.database.read(lambda c: _detail(c, found))
    rest["environment"] = await environment_of(call, found)
    headlines = await call.state.headlines.of([found])
    return JobDetail(**job_fields(call, found, headlines[found.id]), **rest)


def _detail(connection: sa.Connection, found: StoredJob) -> dict[str, Any]:
    spec = spec_of(connection, found.id)
    attempts = attempts_of(connection, found.id)
    current = attempts[-1] if attempts and attempts[-1].ended_ms is None else None
    params = connection.execute(
        sa.select(param.c.name, param.c.value).where(param.c.job_id == found.id).order_by(param.c.name)
    )
    before = sa.select(dependency.c.after_id).where(dependency.c.job_id == found.id)
    return {
        "spec": spec,
        "command": _command(spec),
        "attempts": tuple(map(show_attempt, attempts)),
        "hosts": tuple(HostShare(one.host, one.workers) for one in current.shares) if current else (),
        "after": tuple(connection.scalars(before.order_by(dependency.c.after_id))),
        "metrics": tuple(map(show_metric, summaries(connection, found.id))),
        "params": {row.name: row.value for row in params},
        "findings": findings_of(connection, found.id),
    }


async def environment_of(call: ApiCall, found: StoredJob) -> dict[str, str]:
    """Return the versions that were written down when the newest attempt of a job began."""
    return await asyncio.to_thread(read_environment, call.state.jobs.log_folder(found.id, found.attempt))


async def change(call: ApiCall) -> JobView:
    found = await find_own(call)
    body: JobChanges = call.body
    changes = {name: value for name, value in _given(body).items() if name != "tags"}
    priority = changes.pop("priority", None)
    if priority is not None:
        await _act(call, "priority", value=priority)
    tags = body.tags if body.tags is not msgspec.UNSET else None
    if changes or tags is not None:
        await call.database.write(lambda c: _change(c, found.id, changes, tags))
    return await _again(call)


def _given(body: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _change(
    connection: sa.Connection, job_id: int, changes: dict[str, Any], tags: Mapping[str, str] | None
) -> None:
    if changes:
        connection.execute(sa.update(job).where(job.c.id == job_id).values(changes))
    if tags is not None:
        connection.execute(sa.delete(tag).where(tag.c.job_id == job_id))
        rows = [{"job_id": job_id, "name": name, "value": value} for name, value in tags.items()]
        if rows:
            connection.execute(sa.insert(tag), rows)
    fields = changes if tags is None else {**changes, "tags": dict(tags)}
    for topic in ("jobs", f"job:{job_id}"):
        add_event(connection, topic, "changed", **fields, job=job_id)


async def remove(call: ApiCall) -> None:
    found = await find_own(call)
    if found.pinned:
        raise StateError("a job must not be pinned to be removed, got one that is; unpin it first")
    identity = call.identity
    await call.state.jobs.remove(found.id, user_name=identity.name, visible_to=identity.visible_to)


def _action(name: str) -> Handler:
    async def act(call: ApiCall) -> JobView:
        await find_own(call)
        await _act(call, name)
        return await _again(call)

    return act


async def scale(call: ApiCall) -> JobView:
    body: ScaleBody = call.body
    await find_own(call)
    await _act(call, "scale", workers=body.workers)
    return await _again(call)


async def _act(call: ApiCall, action: str, **args: Any) -> None:
    identity = call.identity
    await call.state.jobs.act(
        int(call.path["job"]), action, user_name=identity.name, visible_to=identity.visible_to, **args
    )


async def _again(call: ApiCall) -> JobView:
    return (await show_jobs(call, [await find(call)]))[0]


async def clone(call: ApiCall) -> SubmitAnswer:
    body: CloneBody = call.body
    identity = call.identity
    await find(call)
    numbers = await call.state.jobs.clone(
        int(call.path["job"]),
        body.changes,
        user_id=identity.user_id,
        user_name=identity.name,
        visible_to=identity.visible_to,
    )
    return SubmitAnswer(await _views_of(call, numbers))


async def list_projects(call: ApiCall) -> ProjectsAnswer:
    visible_to = call.identity.visible_to
    running = sa.func.sum(sa.case((job.c.state.in_(ACTIVE), 1), else_=0))
    found = sa.select(job.c.project, sa.func.count(), running, sa.func.max(job.c.created_ms))
    if visible_to is not None:
        found = found.where(job.c.user_id == visible_to)
    found = found.group_by(job.c.project).order_by(job.c.project)
    rows = await call.database.read(lambda c: c.execute(found).all())
    return ProjectsAnswer(tuple(JobNameUse(row[0], int(row[1]), int(row[2] or 0), row[3]) for row in rows))


async def list_queues(call: ApiCall) -> QueuesAnswer:
    wanted = JobFilter(states=tuple(WAITING), visible_to=call.identity.visible_to)
    page = await call.database.read(lambda c: list_jobs(c, wanted, most=1000, sort="-priority"))
    counted = sa.select(job.c.queue, job.c.state, sa.func.count()).where(job.c.state.in_(WAITING | ACTIVE))
    if call.identity.visible_to is not None:
        counted = counted.where(job.c.user_id == call.identity.visible_to)
    counts: dict[str, dict[str, int]] = {}
    for name, state, count in await call.database.read(
        lambda c: c.execute(counted.group_by(job.c.queue, job.c.state)).all()
    ):
        counts.setdefault(name, {})[state] = int(count)
    views = sorted(await show_jobs(call, page.jobs), key=lambda view: _place(view))
    return QueuesAnswer(tuple(_queue(name, counts[name], views) for name in sorted(counts)))


def _place(view: JobView) -> tuple[bool, int, int]:
    place = view.reason.place if view.reason is not None else None
    return (place is None, place or 0, view.id)


def _queue(name: str, counts: Mapping[str, int], views: list[JobView]) -> QueueView:
    mine = [view for view in views if view.queue == name][:_MOST_OF_A_QUEUE]
    waiting = sum(count for state, count in counts.items() if state in WAITING)
    return QueueView(name, waiting, sum(counts.values()) - waiting, tuple(mine))


HANDLERS: Mapping[str, Handler] = {
    "list_jobs": list_all,
    "submit_job": submit,
    "show_job": show,
    "change_job": change,
    "remove_job": remove,
    **{f"{name}_job": _action(name) for name in ("stop", "pause", "resume", "retry", "hold", "release")},
    "scale_job": scale,
    "clone_job": clone,
    "list_projects": list_projects,
    "list_queues": list_queues,
}
