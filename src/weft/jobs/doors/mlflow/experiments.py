"""Projects as experiments: each project has a number for MLflow's clients; number 0 is the project `default`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.doors.access import DoorError
from weft.jobs.doors.mlflow.memory_search import Searchable
from weft.jobs.doors.mlflow.messages import LONGEST_EXPERIMENT, pairs
from weft.jobs.store.data_tables import project
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import job

DEFAULT = "default"  # the project of jobs that name none
DEFAULT_ID = "0"
MLFLOW_DEFAULT = "Default"  # as MLflow's clients call it


@dataclass(frozen=True)
class Experiment:
    """One project as MLflow sees it."""

    id: str
    name: str
    tags: Mapping[str, str]
    deleted: bool
    created_ms: int
    changed_ms: int

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment_id": self.id,
            "name": self.name,
            "artifact_location": f"mlflow-artifacts:/{self.id}",
            "lifecycle_stage": "deleted" if self.deleted else "active",
            "creation_time": self.created_ms,
            "last_update_time": self.changed_ms,
            "tags": pairs(self.tags),
        }


def _experiment(row: Any) -> Experiment:
    number = DEFAULT_ID if row.name == DEFAULT else str(row.id)
    name = MLFLOW_DEFAULT if row.name == DEFAULT else row.name
    tags = msgspec.json.decode(row.tags, type=dict[str, str])
    return Experiment(number, name, tags, row.deleted, row.created_ms, row.changed_ms)


def project_of(name: str) -> str:
    """Return the project that an experiment's name means."""
    return DEFAULT if name == MLFLOW_DEFAULT else name


def complete(connection: sa.Connection) -> None:
    """Give a number to every project that has none yet: those of jobs, and `default`."""
    known = sa.select(project.c.name)
    named = set(connection.scalars(sa.select(job.c.project).where(job.c.project.not_in(known)).distinct()))
    if connection.scalar(sa.select(project.c.id).where(project.c.name == DEFAULT)) is None:
        named.add(DEFAULT)
    for name in sorted(named):
        _add(connection, name, {})


def _add(connection: sa.Connection, name: str, tags: Mapping[str, str]) -> Experiment:
    at = now_ms()
    row = {"name": name, "tags": msgspec.json.encode(tags).decode(), "created_ms": at, "changed_ms": at}
    return _experiment(connection.execute(sa.insert(project).values(row).returning(*project.c)).one())


def create(connection: sa.Connection, name: str, tags: Mapping[str, str]) -> Experiment:
    """Make an experiment; a name that is taken is refused."""
    check_name(name)
    complete(connection)
    found = by_name(connection, name)
    if found is not None:
        state = "deleted; restore it" if found.deleted else "there; use it"
        raise DoorError("exists", f"a new experiment must have a new name, got {name!r}, which is {state}")
    return _add(connection, project_of(name), tags)


def check_name(name: str) -> None:
    if not name.strip() or len(name) > LONGEST_EXPERIMENT or not name.isprintable():
        raise DoorError(
            "bad",
            f"an experiment's name must be 1 to {LONGEST_EXPERIMENT} printable characters, got {name[:80]!r}",
        )


def by_name(connection: sa.Connection, name: str) -> Experiment | None:
    row = connection.execute(sa.select(project).where(project.c.name == project_of(name))).one_or_none()
    return _experiment(row) if row is not None else None


def by_id(connection: sa.Connection, number: str) -> Experiment:
    """Return an experiment; a number that is nobody's is refused."""
    row = None
    if number == DEFAULT_ID:
        row = connection.execute(sa.select(project).where(project.c.name == DEFAULT)).one_or_none()
    elif number.isdecimal() and len(number) < 19:
        row = connection.execute(sa.select(project).where(project.c.id == int(number))).one_or_none()
    if row is None:
        raise DoorError("not-found", f"an experiment must exist, got {number[:80]!r}; create it first")
    return _experiment(row)


def numbers_of(connection: sa.Connection) -> dict[str, str]:
    """Return the number of each project by its name."""
    found = connection.execute(sa.select(project.c.id, project.c.name))
    return {row.name: DEFAULT_ID if row.name == DEFAULT else str(row.id) for row in found}


def all_experiments(connection: sa.Connection) -> tuple[Experiment, ...]:
    return tuple(_experiment(row) for row in connection.execute(sa.select(project).order_by(project.c.id)))


def change(connection: sa.Connection, number: str, **values: Any) -> None:
    """Change an experiment; a new name is carried to its jobs."""
    found = by_id(connection, number)
    if number == DEFAULT_ID and ("name" in values or values.get("deleted")):
        raise DoorError(
            "bad", "the default experiment must keep its name and stay, got a change; make another"
        )
    name = project_of(found.name)
    if "name" in values:
        check_name(values["name"])
        if by_name(connection, values["name"]) is not None:
            raise DoorError(
                "exists", f"an experiment's new name must be free, got {values['name']!r}; take another"
            )
        connection.execute(sa.update(job).where(job.c.project == name).values(project=values["name"]))
    values["changed_ms"] = now_ms()
    connection.execute(sa.update(project).where(project.c.name == name).values(values))


def set_tag(connection: sa.Connection, number: str, key: str, value: str) -> None:
    found = by_id(connection, number)
    tags = {**found.tags, key: value}
    change(connection, number, tags=msgspec.json.encode(tags).decode())


def searchable(experiment: Experiment) -> Searchable[Experiment]:
    """Return an experiment with what it can be found by."""
    attributes = {
        "name": experiment.name,
        "experiment_id": experiment.id,
        "creation_time": experiment.created_ms,
        "last_update_time": experiment.changed_ms,
    }
    return Searchable(experiment, attributes, experiment.tags)
