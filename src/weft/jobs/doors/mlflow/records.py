"""Points, parameters, tags and inputs that a client logs to a run.

Clients send a batch again when an answer was lost. Points are kept under the digest of their batch, so a batch that
comes twice counts once. A parameter keeps its first value, as in MLflow; a tag takes the last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.doors.access import Caller, DoorError, check_may_change, missing_job
from weft.jobs.doors.mlflow.messages import (
    LONGEST_PARAM,
    LONGEST_TAG,
    MOST_METRICS,
    MOST_PARAMS,
    MOST_TAGS,
    KeyValue,
    LogBatch,
    LogInputs,
    MetricPoint,
    check_key,
    check_value,
    number,
    whole,
)
from weft.jobs.doors.mlflow.queries import DELETED
from weft.jobs.doors.mlflow.runs import RUN_NAME, job_id_of
from weft.jobs.metrics.batches import Report, encode_batch
from weft.jobs.store.data_tables import job_input
from weft.jobs.store.events import add_event
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.metrics import NewBatch
from weft.jobs.store.tables import job, param, tag, user


def reports_of(points: Sequence[MetricPoint]) -> list[Report]:
    """Return points as the store takes them; one that it cannot take is refused by name."""
    reports = []
    for point in points:
        key, value, at, step = point.key, point.value, point.timestamp, point.step
        if type(value) is not float:  # rare: whole numbers, text of NaN
            value = number(value, key)
        if type(at) is not int or type(step) is not int or abs(at) >= 1 << 62 or abs(step) >= 1 << 62:
            at, step = whole(at, f"timestamp of {key}"), whole(step, f"step of {key}")
        reports.append((key, step, at, value))
    for key in {report[0] for report in reports}:
        check_key(key, "metric")
    return reports


class LoggedBatch:
    """A batch that was checked and can be written."""

    def __init__(self, asked: LogBatch) -> None:
        for found, most, what in (
            (asked.metrics, MOST_METRICS, "metrics"),
            (asked.params, MOST_PARAMS, "params"),
            (asked.tags, MOST_TAGS, "tags"),
        ):
            if len(found) > most:
                raise DoorError(
                    "bad", f"a batch must have at most {most} {what}, got {len(found)}; send several"
                )
        self.job_id = job_id_of(asked.run_id)
        self.reports = reports_of(asked.metrics)
        self._points = encode_batch(self.reports) if self.reports else b""
        self._params = _values(asked.params, "parameter", LONGEST_PARAM)
        self._tags = _values(asked.tags, "tag", LONGEST_TAG)

    @property
    def only_points(self) -> bool:
        """Return whether it can be checked before it is written: points conflict with nothing."""
        return not (self._params or self._tags)

    def check(self, connection: sa.Connection, caller: Caller) -> None:
        """Refuse a batch of a run that the caller may not log to."""
        check_loggable(connection, caller, self.job_id)

    def write(self, connection: sa.Connection, caller: Caller) -> bool:
        """Check and write all of it or nothing; return whether there were new points."""
        self.check(connection, caller)
        if self._params:
            add_params(connection, self.job_id, self._params)
        if self._tags:
            set_tags(connection, self.job_id, self._tags)
        return self.points is not None and self.points(connection)

    @property
    def points(self) -> NewBatch | None:
        """The points as they are kept; None if there are none."""
        if not self._points:
            return None
        source = "mlflow:" + hashlib.blake2b(self._points, digest_size=20).hexdigest()
        return NewBatch(self.job_id, source, 0, self._points)


def _values(given: Sequence[KeyValue], what: str, most: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        value = check_value(one.value, most, check_key(one.key, what))
        if what == "parameter" and found.get(one.key, value) != value:
            raise DoorError(
                "bad", f"a batch must name the parameter {one.key!r} once, got two values; send one"
            )
        found[one.key] = value
    return found


def check_loggable(connection: sa.Connection, caller: Caller, job_id: int) -> None:
    """Refuse a run that the caller may not log to, in one question to the database."""
    deleted = sa.exists().where(tag.c.job_id == job.c.id, tag.c.name == DELETED)
    columns = (job.c.user_id, job.c.kind, job.c.parent_id, user.c.name, deleted.label("deleted"))
    found = sa.select(*columns).join(user, user.c.id == job.c.user_id).where(job.c.id == job_id)
    row = connection.execute(found).one_or_none()
    if row is None or caller.visible_to not in (None, row.user_id):
        raise missing_job(job_id)
    check_may_change(caller, job_id, row.user_id, row.name, kind=row.kind, parent_id=row.parent_id)
    if row.deleted:
        raise _deleted(job_id)


def check_active(found: StoredJob) -> None:
    """Refuse to log to a run that was deleted."""
    if DELETED in found.tags:
        raise _deleted(found.id)


def _deleted(job_id: int) -> DoorError:
    return DoorError("conflict", f"a run must be active to be logged to, got {job_id}, deleted; restore it")


def add_params(connection: sa.Connection, job_id: int, values: Mapping[str, str]) -> None:
    """Add parameters; one that has another value already is refused."""
    mine = sa.select(param.c.name, param.c.value).where(
        param.c.job_id == job_id, param.c.name.in_(list(values))
    )
    known = {row.name: row.value for row in connection.execute(mine)}
    for name, value in values.items():
        if known.get(name, value) != value:
            raise DoorError(
                "bad",
                f"the parameter {name!r} must keep its value {known[name][:80]!r}, got {value[:80]!r}; use a tag",
            )
    new = [
        {"job_id": job_id, "name": name, "value": value}
        for name, value in values.items()
        if name not in known
    ]
    if new:
        connection.execute(sa.insert(param), new)
        add_event(connection, f"job:{job_id}", "changed", job=job_id, params=sorted(set(values) - set(known)))


def set_tags(connection: sa.Connection, job_id: int, values: Mapping[str, str]) -> None:
    """Set tags; the tag with the run's name renames the job."""
    if DELETED in values:
        raise DoorError("bad", f"the tag {DELETED} must be left to weft, got a value; use another name")
    connection.execute(sa.delete(tag).where(tag.c.job_id == job_id, tag.c.name.in_(list(values))))
    connection.execute(sa.insert(tag), [{"job_id": job_id, "name": n, "value": v} for n, v in values.items()])
    if values.get(RUN_NAME, "").strip():
        connection.execute(
            sa.update(job).where(job.c.id == job_id).values(name=values[RUN_NAME].strip()[:200])
        )
    add_event(connection, "jobs", "changed", job=job_id, tags=sorted(values))


def delete_tag(connection: sa.Connection, job_id: int, name: str) -> None:
    gone = connection.execute(sa.delete(tag).where(tag.c.job_id == job_id, tag.c.name == name))
    if gone.rowcount == 0 or name == DELETED:
        raise DoorError("not-found", f"a tag must be there to be deleted, got {name[:80]!r}")
    add_event(connection, "jobs", "changed", job=job_id, tags=[name])


def add_inputs(connection: sa.Connection, job_id: int, asked: LogInputs) -> None:
    """Record the data sets that a run has read; one that is there stays."""
    if len(asked.datasets) > MOST_METRICS:
        raise DoorError(
            "bad", f"a request must have at most {MOST_METRICS} data sets, got {len(asked.datasets)}"
        )
    mine = sa.select(job_input.c.name, job_input.c.digest).where(job_input.c.job_id == job_id)
    known = {(row.name, row.digest) for row in connection.execute(mine)}
    for given in asked.datasets:
        one = given.dataset
        if (one.name, one.digest) in known:
            continue
        known.add((one.name, one.digest))
        connection.execute(sa.insert(job_input).values(_input_row(job_id, given)))


def _input_row(job_id: int, given: Any) -> dict[str, Any]:
    one = given.dataset
    tags = [{"key": pair.key, "value": pair.value} for pair in given.tags]
    more = {"schema": one.schema, "profile": one.profile, "tags": tags}
    return {
        "job_id": job_id,
        "name": check_value(one.name, 500, "name"),
        "digest": check_value(one.digest, 64, "digest"),
        "context": next((pair.value for pair in given.tags if pair.key == "mlflow.data.context"), "")[:500],
        "source_type": check_value(one.source_type, 100, "source_type"),
        "source": check_value(one.source, 65_535, "source"),
        "description": msgspec.json.encode(more).decode(),
    }
