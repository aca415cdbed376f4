"""Jobs as runs of MLflow: begun by a foreign client, ended, renamed, deleted, and shown.

A foreign run is a job of kind `tracked`: it is never scheduled, and its client says when it ends. Our own jobs can be
logged to as well, but a client never ends them: the last worker does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.doors.access import Caller, DoorError, changeable_job
from weft.jobs.doors.mlflow import experiments
from weft.jobs.doors.mlflow.messages import (
    LONGEST_TAG,
    STATE_OF,
    STATUS_OF,
    CreateRun,
    UpdateRun,
    check_key,
    check_value,
    pairs,
    shown,
    whole,
)
from weft.jobs.doors.mlflow.queries import DELETED
from weft.jobs.lifecycle import ENDED
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.data_tables import job_input
from weft.jobs.store.events import add_audit, add_event, now_ms
from weft.jobs.store.jobs import StoredJob, load_jobs
from weft.jobs.store.metrics import summaries
from weft.jobs.store.tables import job, metric, param, tag

TRACKED = "tracked"  # the kind of jobs that a foreign client reports
LONGEST_NAME = 200
RUN_NAME = "mlflow.runName"
MOST_AT_ONCE = 5000  # ids in one statement


def job_id_of(run_id: str) -> int:
    """Return the job that a run's id means."""
    number = run_id.removeprefix("job-")
    if not number.isdecimal() or len(number) > 18:
        raise DoorError("not-found", f"a run must exist, got {run_id[:80]!r}; begin one with runs/create")
    return int(number)


def begin(connection: sa.Connection, caller: Caller, asked: CreateRun) -> int:
    """Make a tracked job that runs; return its id."""
    if caller.role == "viewer":
        raise DoorError(
            "forbidden", "a run must be begun by a member or an admin, got a viewer; ask an admin"
        )
    experiments.complete(connection)
    experiment = experiments.by_id(connection, asked.experiment_id or experiments.DEFAULT_ID)
    if experiment.deleted:
        raise DoorError(
            "conflict", f"an experiment must be active, got {experiment.name!r}, deleted; restore it"
        )
    at = now_ms()
    started = whole(asked.start_time, "start_time") if asked.start_time else at
    tags = {check_key(one.key, "tag"): check_value(one.value, LONGEST_TAG, one.key) for one in asked.tags}
    name = (asked.run_name or tags.get(RUN_NAME) or "run").strip() or "run"
    row = {
        "name": name[:LONGEST_NAME],
        "project": experiments.project_of(experiment.name),
        "user_id": caller.user_id,
        "kind": TRACKED,
        "state": "running",
        "queue": "default",
        "priority": 50,
        "spec": msgspec.json.encode(JobSpec(run=TRACKED)).decode(),
        "created_ms": at,
        "queued_ms": at,
        "started_ms": started,
        "parent_id": caller.job_id,  # a script in a job may begin runs within its own
    }
    job_id = int(connection.execute(sa.insert(job).values(row).returning(job.c.id)).scalar_one())
    if tags:
        connection.execute(
            sa.insert(tag), [{"job_id": job_id, "name": n, "value": v} for n, v in tags.items()]
        )
    add_event(
        connection, "jobs", "submitted", job=job_id, name=row["name"], state="running", user=caller.user_name
    )
    add_audit(connection, caller.user_name, "track", f"job {job_id}", name=row["name"])
    return job_id


def update(connection: sa.Connection, caller: Caller, asked: UpdateRun) -> int:
    """End a tracked run, begin it again, or rename a run; the state of our own jobs stays as it is."""
    job_id = job_id_of(asked.run_id)
    found = changeable_job(connection, caller, job_id)
    if asked.run_name:
        check_value(asked.run_name, LONGEST_TAG, RUN_NAME)
        changed = sa.update(job).where(job.c.id == job_id).values(name=asked.run_name[:LONGEST_NAME])
        connection.execute(changed)
        add_event(connection, "jobs", "changed", job=job_id, name=asked.run_name[:LONGEST_NAME])
    if asked.status is not None:
        if asked.status not in STATE_OF:
            raise DoorError("bad", f"status must be one of {', '.join(STATE_OF)}, got {asked.status[:40]!r}")
        if found.kind == TRACKED:
            _set_state(connection, found, asked)
    return job_id


def _set_state(connection: sa.Connection, found: StoredJob, asked: UpdateRun) -> None:
    state = STATE_OF[asked.status or "RUNNING"]
    state = "running" if state == "queued" else state  # nothing waits for a run that others carry out
    ended = None
    if state in ENDED:
        ended = whole(asked.end_time, "end_time") if asked.end_time else now_ms()
    connection.execute(sa.update(job).where(job.c.id == found.id).values(state=state, ended_ms=ended))
    if state != found.state:
        for topic in ("jobs", f"job:{found.id}"):
            add_event(connection, topic, "state", job=found.id, before=found.state, state=state, message=None)


def delete(connection: sa.Connection, caller: Caller, run_id: str) -> None:
    """Hide a run from searches; `restore` brings it back."""
    job_id = job_id_of(run_id)
    changeable_job(connection, caller, job_id)
    restore(connection, caller, run_id)
    connection.execute(sa.insert(tag).values(job_id=job_id, name=DELETED, value=str(now_ms())))


def restore(connection: sa.Connection, caller: Caller, run_id: str) -> None:
    job_id = job_id_of(run_id)
    changeable_job(connection, caller, job_id)
    connection.execute(sa.delete(tag).where(tag.c.job_id == job_id, tag.c.name == DELETED))


# -- shown ------------------------------------------------------------------------------------------------------------


def run_info(found: StoredJob, numbers: dict[str, str]) -> dict[str, Any]:
    """Return a job as MLflow describes a run."""
    number = numbers.get(found.project, experiments.DEFAULT_ID)
    info: dict[str, Any] = {
        "run_id": str(found.id),
        "run_uuid": str(found.id),
        "run_name": found.name,
        "experiment_id": number,
        "user_id": found.user_name,
        "status": STATUS_OF[found.state],
        "start_time": found.started_ms or found.created_ms,
        "artifact_uri": f"mlflow-artifacts:/{number}/{found.id}/artifacts",
        "lifecycle_stage": "deleted" if DELETED in found.tags else "active",
    }
    return info | ({"end_time": found.ended_ms} if found.ended_ms is not None else {})


def _run(
    found: StoredJob, numbers: dict[str, str], metrics: list[Any], params: list[Any], inputs: list[Any]
) -> dict[str, Any]:
    tags = {RUN_NAME: found.name, **{name: value for name, value in found.tags.items() if name != DELETED}}
    return {
        "info": run_info(found, numbers),
        "data": {"metrics": metrics, "params": params, "tags": pairs(tags)},
        "inputs": {"dataset_inputs": inputs},
    }


def _metric(summary: Any) -> dict[str, Any]:
    last = float("nan") if summary.last is None else summary.last  # as which SQLite keeps NaN
    return {
        "key": summary.name,
        "value": shown(last),
        "timestamp": summary.last_ms,
        "step": summary.last_step,
    }


def show_run(connection: sa.Connection, found: StoredJob) -> dict[str, Any]:
    """Return one run with its newest metrics, also those that are not packed yet."""
    metrics = [_metric(summary) for summary in summaries(connection, found.id)]
    params = _params(connection, [found.id]).get(found.id, [])
    inputs = _inputs(connection, [found.id]).get(found.id, [])
    return _run(found, experiments.numbers_of(connection), metrics, params, inputs)


def show_runs(connection: sa.Connection, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return runs, whose metrics are packed, in the order of their ids given."""
    numbers = experiments.numbers_of(connection)
    shown_runs: list[dict[str, Any]] = []
    for start in range(0, len(ids), MOST_AT_ONCE):
        part = ids[start : start + MOST_AT_ONCE]
        metrics: dict[int, list[Any]] = {}
        for row in connection.execute(
            sa.select(metric).where(metric.c.job_id.in_(part)).order_by(metric.c.name)
        ):
            metrics.setdefault(row.job_id, []).append(_metric(row))
        params, inputs = _params(connection, part), _inputs(connection, part)
        jobs = {one.id: one for one in load_jobs(connection, part)}
        shown_runs += [
            _run(jobs[one], numbers, metrics.get(one, []), params.get(one, []), inputs.get(one, []))
            for one in part
            if one in jobs
        ]
    return shown_runs


def _params(connection: sa.Connection, ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in connection.execute(sa.select(param).where(param.c.job_id.in_(ids)).order_by(param.c.name)):
        found.setdefault(row.job_id, []).append({"key": row.name, "value": row.value})
    return found


def _inputs(connection: sa.Connection, ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in connection.execute(sa.select(job_input).where(job_input.c.job_id.in_(ids))):
        more = msgspec.json.decode(row.description, type=dict[str, Any])
        one = {"name": row.name, "digest": row.digest, "source_type": row.source_type, "source": row.source}
        one |= {key: more[key] for key in ("schema", "profile") if more.get(key)}
        found.setdefault(row.job_id, []).append({"dataset": one, "tags": more.get("tags", [])})
    return found
