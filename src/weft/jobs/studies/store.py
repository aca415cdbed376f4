"""Studies in the store: made, listed, found, asked for something, removed; their events are only added to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.lifecycle import StateError
from weft.jobs.store.events import add_audit, add_event, now_ms
from weft.jobs.store.study_tables import study, study_event, study_request, study_trial
from weft.jobs.store.tables import user
from weft.tune.results.views import StudyView, study_view
from weft.tune.study.events import AnyEvent, decode_event, encode_event
from weft.tune.study.state import SearchState

MOST_LISTED = 1000


class StudyNotFound(UsageError, LookupError):  # noqa: N818 (the name of the answer: 404)
    """A study that is not there, or that the user may not see."""

    def __init__(self, study_id: int) -> None:
        super().__init__(f"a study must exist, got study {study_id}; see weft studies")


@dataclass(frozen=True)
class StoredStudy:
    """One study as the store knows it."""

    id: int
    name: str
    project: str
    user_id: int
    user_name: str
    state: str
    snapshot: str | None
    events: int
    created_ms: int
    view: StudyView


@dataclass(frozen=True)
class TrialJob:
    """The job of a trial, and what it was told."""

    trial: int
    job_id: int | None
    starts: int
    resource: int


def add_study(
    connection: sa.Connection,
    events: Sequence[AnyEvent],
    *,
    project: str,
    user_id: int,
    user_name: str,
    snapshot: str | None,
) -> int:
    """Keep a new study; return its id."""
    state = SearchState.of(events)
    name = state.config.name
    row = {"name": name, "project": project, "user_id": user_id, "state": state.state, "snapshot": snapshot,
           "view": "{}", "created_ms": now_ms()}  # fmt: skip
    study_id = int(connection.execute(sa.insert(study).values(row).returning(study.c.id)).scalar_one())
    append_events(connection, study_id, 0, events)
    keep_view(connection, study_id, state, len(events), user=(user_id, user_name), project=project)
    add_event(connection, "studies", "made", study=study_id, name=name, user=user_name, owner=user_id)
    add_audit(connection, user_name, "make study", f"study {study_id}", name=name)
    return study_id


def append_events(connection: sa.Connection, study_id: int, after: int, events: Sequence[AnyEvent]) -> None:
    """Add events after those that are known; that there are others by now is an error."""
    rows = [
        {"study_id": study_id, "number": after + index, "data": encode_event(event).decode()}
        for index, event in enumerate(events)
    ]
    if rows:
        connection.execute(sa.insert(study_event), rows)


def keep_view(
    connection: sa.Connection,
    study_id: int,
    state: SearchState,
    events: int,
    *,
    user: tuple[int, str],
    project: str,
) -> None:
    """Note what lists show of a study, and notify the watchers."""
    view = study_view(state, id=study_id, user=user[1], project=project)
    values = {"state": state.state, "events": events, "view": msgspec.json.encode(view).decode()}
    connection.execute(sa.update(study).where(study.c.id == study_id).values(values))
    best = None if view.best is None else view.best.number
    about: dict[str, Any] = {
        "owner": user[0],
        "state": state.state,
        "events": events,
        "trials": view.trials,
        "counts": view.counts,
        "best": best,
    }
    for topic in ("studies", f"study:{study_id}"):
        add_event(connection, topic, "study", study=study_id, **about)


def need_study(connection: sa.Connection, study_id: int, *, visible_to: int | None = None) -> StoredStudy:
    """Return a study; StudyNotFound if there is none for this user."""
    found = _select().where(study.c.id == study_id)
    if visible_to is not None:
        found = found.where(study.c.user_id == visible_to)
    row = connection.execute(found).one_or_none()
    if row is None:
        raise StudyNotFound(study_id)
    return _stored(row)


def list_studies(connection: sa.Connection, *, visible_to: int | None = None) -> tuple[StoredStudy, ...]:
    """Return studies, the newest first."""
    found = _select().order_by(study.c.id.desc()).limit(MOST_LISTED)
    if visible_to is not None:
        found = found.where(study.c.user_id == visible_to)
    return tuple(map(_stored, connection.execute(found)))


def studies_to_drive(connection: sa.Connection) -> list[int]:
    """Return the studies that something may have to be done for."""
    asked = sa.select(study_request.c.study_id)
    return list(
        connection.scalars(
            sa.select(study.c.id)
            .where(sa.or_(study.c.state == "running", study.c.id.in_(asked)))
            .order_by(study.c.id)
        )
    )


def events_of(connection: sa.Connection, study_id: int, after: int = 0) -> list[AnyEvent]:
    """Return the events of a study from a number on."""
    found = (
        sa.select(study_event.c.data)
        .where(study_event.c.study_id == study_id, study_event.c.number >= after)
        .order_by(study_event.c.number)
    )
    return [decode_event(text.encode()) for text in connection.scalars(found)]


def trial_jobs(connection: sa.Connection, study_id: int) -> dict[int, TrialJob]:
    """Return the jobs of a study's trials, by trial."""
    found = sa.select(study_trial).where(study_trial.c.study_id == study_id)
    return {
        row.trial: TrialJob(row.trial, row.job_id, row.starts, row.resource)
        for row in connection.execute(found)
    }


def put_trial_job(connection: sa.Connection, study_id: int, one: TrialJob) -> None:
    """Note the job of a trial and what it was told."""
    where = sa.and_(study_trial.c.study_id == study_id, study_trial.c.trial == one.trial)
    values = {"job_id": one.job_id, "starts": one.starts, "resource": one.resource}
    if not connection.execute(sa.update(study_trial).where(where).values(values)).rowcount:
        connection.execute(sa.insert(study_trial).values(study_id=study_id, trial=one.trial, **values))


def ask_study(connection: sa.Connection, study_id: int, request: dict[str, Any], *, user_name: str) -> None:
    """Note a request for a study, which its driver carries out next."""
    row = {"study_id": study_id, "user_name": user_name, "data": msgspec.json.encode(request).decode()}
    connection.execute(sa.insert(study_request).values(row))
    add_event(connection, f"study:{study_id}", "asked", study=study_id, verb=request["do"], user=user_name)
    add_audit(connection, user_name, f"{request['do']} study", f"study {study_id}")


def requests_of(connection: sa.Connection, study_id: int) -> list[tuple[int, dict[str, Any]]]:
    """Return what a study was asked for and has not done yet."""
    found = sa.select(study_request).where(study_request.c.study_id == study_id).order_by(study_request.c.id)
    return [(row.id, msgspec.json.decode(row.data)) for row in connection.execute(found)]


def forget_requests(connection: sa.Connection, ids: Sequence[int]) -> None:
    """Remove requests that were carried out or refused."""
    if ids:
        connection.execute(sa.delete(study_request).where(study_request.c.id.in_(ids)))


def remove_study(connection: sa.Connection, study_id: int, *, user_name: str) -> None:
    """Remove a study that is over; its jobs stay."""
    found = need_study(connection, study_id)
    if found.state in ("running", "paused"):
        raise StateError(f"a study must be over to be removed, got one that is {found.state}; stop it first")
    connection.execute(sa.delete(study).where(study.c.id == study_id))
    add_event(connection, "studies", "removed", study=study_id, owner=found.user_id)
    add_audit(connection, user_name, "remove study", f"study {study_id}", name=found.name)


def _select() -> sa.Select[Any]:
    return sa.select(study, user.c.name.label("user_name")).select_from(
        study.join(user, user.c.id == study.c.user_id)
    )


def _stored(row: Any) -> StoredStudy:
    view = msgspec.json.decode(row.view, type=StudyView)
    return StoredStudy(
        row.id, row.name, row.project, row.user_id, row.user_name, row.state, row.snapshot, row.events,
        row.created_ms, view,
    )  # fmt: skip
