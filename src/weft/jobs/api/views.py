"""Views: rows of the store as callers see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.cluster import HostDetail, HostJob, HostView, ResourceView
from weft.jobs.api.types.common import scalar
from weft.jobs.api.types.jobs import AttemptView, Headline, HostShare, JobView, ReasonView
from weft.jobs.api.types.reports import FindingView, MetricView
from weft.jobs.lifecycle import WAITING
from weft.jobs.scheduler.explain import Reason
from weft.jobs.scheduler.model import Resources
from weft.jobs.store.attempts import StoredAttempt
from weft.jobs.store.hosts import StoredHost
from weft.jobs.store.jobs import StoredJob, need_job
from weft.jobs.store.metrics import MetricSummary
from weft.jobs.store.tables import finding

_SAME = tuple(name for name in JobView.__struct_fields__ if name in StoredJob.__dataclass_fields__)


async def find(call: ApiCall) -> StoredJob:
    """Return the job of a request's path, if the caller may see it."""
    job_id, visible_to = int(call.path["job"]), call.identity.visible_to
    return await call.database.read(lambda c: need_job(c, job_id, visible_to=visible_to))


async def find_own(call: ApiCall) -> StoredJob:
    """Return the job of a request's path, if the caller may change it."""
    found = await find(call)
    call.identity.check_acts_on(found)
    return found


async def show_jobs(call: ApiCall, found: Sequence[StoredJob]) -> tuple[JobView, ...]:
    """Return jobs as the caller sees them."""
    headlines = await call.state.headlines.of(found)
    return tuple(JobView(**job_fields(call, one, headlines.get(one.id))) for one in found)


def job_fields(call: ApiCall, found: StoredJob, headline: Headline | None) -> dict[str, Any]:
    """Return the fields of a job's view."""
    fields = {name: getattr(found, name) for name in _SAME}
    reason = call.state.jobs.reason(found.id) if found.state in WAITING else None
    if reason is not None and (reason.why == "held") != (found.state == "held"):
        reason = None  # it was held or released a moment ago, and nothing has been decided since
    return fields | {
        "user": found.user_name,
        "reason": show_reason(reason),
        "tags": dict(found.tags),
        "headline": headline,
        "mine": call.identity.may_act_on(found),
    }


def show_reason(reason: Reason | None) -> ReasonView | None:
    if reason is None:
        return None
    earliest_ms = None if reason.earliest_s is None else int(reason.earliest_s * 1000)
    return ReasonView(reason.why, reason.text, reason.place, earliest_ms)


def show_attempt(found: StoredAttempt) -> AttemptView:
    hosts = tuple(HostShare(share.host, share.workers) for share in found.shares)
    return AttemptView(found.number, found.started_ms, found.ended_ms, hosts, found.code, found.message)


def show_metric(found: MetricSummary) -> MetricView:
    return MetricView(
        found.name,
        found.points,
        scalar(found.last),
        found.last_step,
        found.last_ms,
        found.lowest,
        found.highest,
    )


def findings_of(connection: sa.Connection, job_id: int) -> tuple[FindingView, ...]:
    """Return what the rules of advice found about a job."""
    rows = connection.execute(sa.select(finding).where(finding.c.job_id == job_id).order_by(finding.c.id))
    return tuple(
        FindingView(
            row.rule, row.severity, row.text, _evidence(row.evidence), row.action, row.first_ms, row.last_ms
        )
        for row in rows
    )


def _evidence(text: str) -> dict[str, Any]:
    found = msgspec.json.decode(text)
    return {str(name): value for name, value in found.items() if isinstance(value, (int, float, str))}


def show_resources(found: Resources) -> ResourceView:
    return ResourceView(found.cpus, found.memory_bytes, found.gpus)


def host_fields(found: StoredHost, used: ResourceView, jobs: Sequence[HostJob]) -> dict[str, Any]:
    """Return the fields of a host's view."""
    return {
        "name": found.name,
        "state": found.state,
        "labels": tuple(sorted(found.labels)),
        "rack": found.rack,
        "message": found.message,
        "seen_ms": found.seen_ms,
        "total": show_resources(found.total),
        "used": used,
        "jobs": tuple(jobs),
    }


def show_host(found: StoredHost, used: ResourceView, jobs: Sequence[HostJob]) -> HostView:
    return HostView(**host_fields(found, used, jobs))


def show_host_detail(found: StoredHost, used: ResourceView, jobs: Sequence[HostJob]) -> HostDetail:
    topology = found.topology.to_json() if found.topology is not None else None
    return HostDetail(**host_fields(found, used, jobs), topology=topology, links=())
