"""Requests of people about one job: stop, pause, resume, retry, hold, release, scale, priority; and clones of it."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.lifecycle import ENDED, WAITING, StateError, state_after
from weft.jobs.service.attempts.command import is_elastic
from weft.jobs.spec.cron import next_time_ms
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import SpecError, SpecProblem, convert_spec, resolve
from weft.jobs.store.events import add_audit
from weft.jobs.store.jobs import StoredJob, change_job, move_job, need_job, spec_of
from weft.text import plural

STATE_ACTIONS = ("stop", "pause", "resume", "retry", "hold", "release")
ACTIONS = (*STATE_ACTIONS, "scale", "priority", "restart")


def act(
    connection: sa.Connection,
    job_id: int,
    action: str,
    *,
    user_name: str,
    visible_to: int | None,
    **arguments: Any,
) -> None:
    """Carry out a request, or note it for the dispatcher; StateError where the job's state does not allow it."""
    job = need_job(connection, job_id, visible_to=visible_to)
    if action not in ACTIONS:
        raise UsageError(f"an action must be one of {', '.join(ACTIONS)}, got {action!r}")
    if job.kind not in ("run", "schedule"):
        raise StateError(f"a job must be run by this service to {action}, got one that is only tracked")
    if action == "scale":
        _scale(connection, job, int(arguments["workers"]))
    elif action == "priority":
        _prioritize(connection, job, int(arguments["value"]))
    elif action == "restart":
        _restart(connection, job)
    else:
        _change_state(connection, job, action)
    add_audit(connection, user_name, action, f"job {job_id}", **arguments)


def _change_state(connection: sa.Connection, job: StoredJob, action: Any) -> None:
    aim = state_after(action, job.state)
    changes: dict[str, Any] = {}
    if aim == "queued":
        line = spec_of(connection, job.id).schedule if job.kind == "schedule" else None
        changes["not_before_ms"] = next_time_ms(line) if line is not None else 0
    if action == "retry":
        changes |= {"retries": 0, "avoid": "[]", "cause": None, "started_ms": None, "progress": None}
        move_job(connection, job.id, aim, message="queued again on request", **changes)
    elif job.state in WAITING:
        message = {"stop": "stopped on request", "hold": "held on request"}.get(action)
        move_job(connection, job.id, aim, message=message, **changes)
    elif job.wanted != "stop":  # it is running: the dispatcher asks its launcher to end
        change_job(connection, job.id, wanted=action)


def _scale(connection: sa.Connection, job: StoredJob, workers: int) -> None:
    if job.state in ENDED:
        raise StateError(
            f"a job must not have ended to scale, got one that is {job.state}; weft job retry runs it again"
        )
    if not is_elastic(resolve(spec_of(connection, job.id))):
        raise StateError(
            f"a job must be elastic to scale, got {plural(job.max_workers, 'worker')}; submit it with workers: MIN:MAX"
        )
    if not job.min_workers <= workers <= job.max_workers:
        raise UsageError(
            f"workers must be between {job.min_workers} and {job.max_workers}, got {workers}; clone the job with other "
            "limits"
        )
    change_job(connection, job.id, workers_limit=workers)


def _restart(connection: sa.Connection, job: StoredJob) -> None:
    """Have the attempt that runs end at its last checkpoint, and another one begin."""
    if job.state != "running" or job.wanted is not None:
        raise StateError(f"a job must be running to start again, got one that is {job.wanted or job.state}")
    change_job(connection, job.id, wanted="restart")


def _prioritize(connection: sa.Connection, job: StoredJob, value: int) -> None:
    if not 0 <= value <= 100:
        raise UsageError(f"priority must be between 0 and 100, got {value}; 50 is usual, 100 most urgent")
    change_job(connection, job.id, priority=value)


def merged_spec(spec: JobSpec, changes: dict[str, Any]) -> JobSpec:
    """Return a specification with changes merged into it, field by field; null takes a field back to its default."""
    return convert_spec(_merge(msgspec.to_builtins(spec), changes))


def _merge(before: Any, changes: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(changes, dict):
        return changes
    merged = dict(before)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def never_fits(text: str) -> SpecError:
    """Return the error for a job that no host could ever take."""
    return SpecError((SpecProblem("resources", "fit onto the hosts", text, "ask for less, or add hosts"),))
