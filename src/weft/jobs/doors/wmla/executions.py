"""Jobs as executions and applications of WMLA's REST. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from weft.jobs.doors.access import DoorError
from weft.jobs.lifecycle import JobState
from weft.jobs.store.jobs import StoredJob

STATE_OF: Mapping[JobState, str] = {
    "held": "PENDING_CRD_SCHEDULER",
    "queued": "PENDING_CRD_SCHEDULER",
    "paused": "PENDING_CRD_SCHEDULER",
    "staging": "SUBMITTED",
    "starting": "SUBMITTED",
    "running": "RUNNING",
    "storing": "RUNNING",
    "completed": "FINISHED",
    "failed": "FINISHED",
    "stopped": "FINISHED",
}
ERRORS: Mapping[str, int] = {
    "unauthenticated": 401,
    "forbidden": 403,
    "not-found": 404,
    "gone": 410,
    "conflict": 409,
    "too-large": 413,
    "bad": 400,
}
SORTS = {"submittime": "created_ms", "id": "id", "name": "name", "state": "state", "user": "user_name"}


def exec_id(job: StoredJob) -> str:
    return f"{job.user_name}-{job.id}"


def job_id_of(text: str) -> int:
    """Return the job of an execution or an application: ann-7, app-7."""
    number = text.rpartition("-")[2]
    if not number.isdecimal() or len(number) > 18:
        raise DoorError("not-found", f"an execution must exist, got {text[:80]!r}; list them with GET /execs")
    return int(number)


def exec_json(job: StoredJob, kept: Mapping[str, Any], work_dir: str) -> dict[str, Any]:
    """Return a job as an execution."""
    created = datetime.fromtimestamp(job.created_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "id": exec_id(job),
        "args": kept.get("args", ""),
        "submissionId": exec_id(job),
        "creator": job.user_name,
        "userName": job.user_name,
        "state": STATE_OF[job.state],
        "schedulerState": job.state,  # which tells the ends apart
        "exitMessage": job.message or "",
        "appId": f"app-{job.id}",
        "appName": job.name,
        "workDir": work_dir,
        "createTime": created.replace("+00:00", "Z"),
        "elastic": bool(kept.get("elastic", False)),
        "numWorker": kept.get("workers", job.max_workers),
        "framework": kept.get("framework", ""),
        "sigName": kept.get("sigName", ""),
        "sigId": kept.get("sigName", ""),
    }


def application_json(job: StoredJob) -> dict[str, Any]:
    """Return a job as an application of the scheduler."""
    return {
        "id": f"app-{job.id}",
        "name": job.name,
        "state": STATE_OF[job.state],
        "user": job.user_name,
        "submittime": job.created_ms,
        "starttime": job.started_ms,
        "endtime": job.ended_ms,
        "driver": {"id": f"app-{job.id}", "state": STATE_OF[job.state]},
        "executors": [{"id": number + 1} for number in range(job.workers)],
    }


def select(
    jobs: Sequence[StoredJob],
    *,
    state: str = "",
    search: str = "",
    sort: str = "",
    start: int = 0,
    length: int = 100,
) -> list[dict[str, Any]]:
    """Return a page of applications; `sort` is a name, with a minus for the other way round."""
    found = [job for job in jobs if not state or STATE_OF[job.state] == state.upper()]
    found = [job for job in found if search.lower() in job.name.lower() or search == f"app-{job.id}"]
    key = SORTS.get(sort.lstrip("+-").lower(), "created_ms")
    found.sort(key=lambda job: (getattr(job, key), job.id), reverse=not sort or sort.startswith("-"))
    return [application_json(job) for job in found[start : start + length]]
