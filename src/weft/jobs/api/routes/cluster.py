"""Hosts and the overview: what the machines do now; and the service's health."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa

from weft.errors import ConnectError
from weft.files import cache_folder
from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.cluster import (
    CapacityView,
    FindingOfJob,
    HealthAnswer,
    HostChanges,
    HostCounts,
    HostDetail,
    HostJob,
    HostsAnswer,
    HostView,
    LinkView,
    NewHost,
    OverviewAnswer,
    RemovedJob,
    ResourceView,
    RetentionAnswer,
    RetentionBody,
)
from weft.jobs.api.views import show_host, show_host_detail, show_jobs, show_resources
from weft.jobs.lifecycle import ACTIVE
from weft.jobs.scheduler.model import Resources
from weft.jobs.store.attempts import open_attempts
from weft.jobs.store.events import newest_event
from weft.jobs.store.hosts import HostNotFound, StoredHost, list_hosts
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.listing import JobFilter, count_by_state, list_jobs
from weft.jobs.store.tables import finding, job
from weft.jobs.upkeep.retention import RetentionPolicy
from weft.jobs.upkeep.sweep import sweep
from weft.launch.preflight.linkcache import newest
from weft.version import __version__

MOST_SHOWN = 20
_NONE = ResourceView()


@dataclass(frozen=True)
class HostUse:
    """All hosts, with the jobs on each and what those hold."""

    hosts: tuple[StoredHost, ...]
    jobs: dict[str, list[HostJob]]
    used: dict[str, ResourceView]

    def view(self, found: StoredHost) -> HostView:
        return show_host(found, self.used.get(found.name, _NONE), self.jobs.get(found.name, ()))

    def detail(self, found: StoredHost) -> HostDetail:
        return show_host_detail(found, self.used.get(found.name, _NONE), self.jobs.get(found.name, ()))

    def find(self, name: str) -> StoredHost:
        found = next((one for one in self.hosts if one.name == name), None)
        if found is None:
            raise HostNotFound(f"a host must be one that was added, got {name[:250]!r}; see weft hosts")
        return found


async def _use(call: ApiCall) -> HostUse:
    visible_to = call.identity.visible_to

    def work(connection: sa.Connection) -> tuple[tuple[StoredHost, ...], dict[str, list[HostJob]]]:
        named = sa.select(job.c.id, job.c.name, job.c.user_id).where(job.c.state.in_(ACTIVE))
        names = {row.id: row for row in connection.execute(named)}
        jobs: dict[str, list[HostJob]] = {}
        for attempt in open_attempts(connection):
            row = names.get(attempt.job_id)
            if row is None or (visible_to is not None and row.user_id != visible_to):
                continue
            for share in attempt.shares:
                jobs.setdefault(share.host, []).append(HostJob(row.id, row.name, share.workers))
        return list_hosts(connection), jobs

    hosts, jobs = await call.database.read(work)
    used = {name: show_resources(amount) for name, amount in call.state.jobs.used().items()}
    return HostUse(hosts, jobs, used)


async def list_all(call: ApiCall) -> HostsAnswer:
    use = await _use(call)
    return HostsAnswer(tuple(map(use.view, use.hosts)))


async def show(call: ApiCall) -> HostDetail:
    use = await _use(call)
    found = use.find(call.path["host"])
    links = await asyncio.to_thread(_links_of, found.name, {one.name for one in use.hosts})
    return msgspec.structs.replace(use.detail(found), links=links)


def _links_of(name: str, hosts: Collection[str]) -> tuple[LinkView, ...]:
    """Return the measured links of a host to others of the service."""
    known = newest(cache_folder("links"))
    shown = []
    for (source, target), (link, at_s) in sorted(known.items()):
        if source == name and target in hosts:
            back = known.get((target, source))
            back_mbps = back[0].mbps if back is not None else None
            shown.append(LinkView(target, link.mbps, back_mbps, link.rtt_ms, round(at_s * 1000)))
    return tuple(shown)


async def add(call: ApiCall) -> HostView:
    body: NewHost = call.body
    try:
        name = await call.state.jobs.add_host(body.name, body.labels, body.rack)
    except ConnectError as error:
        raise ApiRefusal(422, str(error), code="unreachable") from None
    use = await _use(call)
    return use.view(use.find(name))


async def change(call: ApiCall) -> HostView:
    body: HostChanges = call.body
    found = (await _use(call)).find(call.path["host"])
    labels = found.labels if body.labels is msgspec.UNSET else body.labels
    rack = None if body.rack is msgspec.UNSET else body.rack
    await call.state.jobs.set_labels(found.name, tuple(labels), rack)
    return await _again(call)


async def drain(call: ApiCall) -> HostView:
    await call.state.jobs.drain(call.path["host"])
    return await _again(call)


async def undrain(call: ApiCall) -> HostView:
    await call.state.jobs.undrain(call.path["host"])
    return await _again(call)


async def remove(call: ApiCall) -> None:
    await call.state.jobs.remove_host(call.path["host"])


async def _again(call: ApiCall) -> HostView:
    use = await _use(call)
    return use.view(use.find(call.path["host"]))


async def show_overview(call: ApiCall) -> OverviewAnswer:
    visible_to = call.identity.visible_to

    def pages(connection: sa.Connection) -> tuple[tuple[StoredJob, ...], ...]:
        kinds = (tuple(ACTIVE), ("queued", "held", "paused"), ("failed",))
        sorts = ("-id", "-priority", "-ended")
        filters = [JobFilter(states=states, visible_to=visible_to) for states in kinds]  # type: ignore[arg-type]
        return tuple(
            list_jobs(connection, one, most=MOST_SHOWN, sort=sort).jobs
            for one, sort in zip(filters, sorts, strict=True)
        )

    running, waiting, failures = await call.database.read(pages)
    counts = await call.database.read(lambda c: count_by_state(c, JobFilter(visible_to=visible_to)))
    use = await _use(call)
    states = [one.state for one in use.hosts]
    return OverviewAnswer(
        counts,
        HostCounts(states.count("up"), states.count("drained"), states.count("lost")),
        _capacity(call, use),
        await show_jobs(call, running),
        await show_jobs(call, waiting),
        await show_jobs(call, failures),
        await call.database.read(lambda c: _findings(c, visible_to)),
    )


def _capacity(call: ApiCall, use: HostUse) -> CapacityView:
    """Return what the hosts that are up have, and what jobs hold."""
    totals = [one.total for one in use.hosts if one.state == "up"]
    return CapacityView(
        show_resources(_sum(totals)), show_resources(_sum(list(call.state.jobs.used().values())))
    )


def _sum(amounts: list[Resources]) -> Resources:
    return Resources(
        sum(one.cpus for one in amounts),
        sum(one.memory_bytes for one in amounts),
        sum(one.gpus for one in amounts),
    )


def _findings(connection: sa.Connection, visible_to: int | None) -> tuple[FindingOfJob, ...]:
    found = sa.select(finding, job.c.name).join(job, job.c.id == finding.c.job_id)
    if visible_to is not None:
        found = found.where(job.c.user_id == visible_to)
    rows = connection.execute(found.order_by(finding.c.last_ms.desc()).limit(MOST_SHOWN))
    return tuple(
        FindingOfJob(row.job_id, row.name, row.rule, row.severity, row.text, row.last_ms) for row in rows
    )


async def show_health(call: ApiCall) -> HealthAnswer:
    problems: list[str] = []
    try:
        async with asyncio.timeout(5):
            await call.database.read(newest_event)
    except (TimeoutError, sa.exc.SQLAlchemyError):
        problems.append("the database does not answer")
    problems += [_public(text) for text in call.state.jobs.troubles()]
    return HealthAnswer("degraded" if problems else "ok", __version__, tuple(problems))


async def apply_retention(call: ApiCall) -> RetentionAnswer:
    body: RetentionBody = call.body
    policy = RetentionPolicy(days=body.days, most_bytes=body.most_bytes)
    found = await sweep(call.state.jobs, policy, user_name=call.identity.name, dry_run=body.dry_run)
    jobs = tuple(
        RemovedJob(one.job.id, one.job.name, one.job.ended_ms, one.job.bytes, one.why) for one in found
    )
    return RetentionAnswer(jobs, sum(one.bytes for one in jobs), body.dry_run)


def _public(trouble: str) -> str:
    """Return a trouble without paths and messages of the database: everybody may ask for the health."""
    return "the disk is almost full" if trouble.startswith("the disk") else trouble.partition(":")[0]


HANDLERS: Mapping[str, Handler] = {
    "show_overview": show_overview,
    "list_hosts": list_all,
    "add_host": add,
    "show_host": show,
    "change_host": change,
    "remove_host": remove,
    "drain_host": drain,
    "undrain_host": undrain,
    "apply_retention": apply_retention,
    "show_health": show_health,
}
