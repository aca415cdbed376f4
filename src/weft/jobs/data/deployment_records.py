"""Records of deployments in the service's database."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.service.attempts.processes import is_alive
from weft.jobs.store.data_tables import deployment
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.tables import user


@dataclass(frozen=True)
class Deployment:
    """One served model."""

    id: int
    name: str
    model: str
    version: int
    previous: tuple[int, ...]  # versions served before, the last one last
    state: str  # starting, running, failed, stopped
    message: str | None
    port: int | None
    pid: int | None
    pid_started: int | None
    user_id: int
    user_name: str
    created_ms: int
    changed_ms: int

    @property
    def alias(self) -> str:
        return f"deployment-{self.name}"

    @property
    def is_alive(self) -> bool:
        return self.pid is not None and self.pid_started is not None and is_alive(self.pid, self.pid_started)


class DeploymentCanary(msgspec.Struct, frozen=True):
    """A version that answers a share of the requests to a deployment."""

    version: int
    percent: float


def add_deployment(connection: sa.Connection, name: str, model: str, version: int, user_id: int) -> None:
    """Add a deployment, whose server is to be started."""
    at = now_ms()
    row = {"name": name, "model": model, "version": version, "previous": "[]", "state": "starting"}
    connection.execute(sa.insert(deployment).values(**row, user_id=user_id, created_ms=at, changed_ms=at))


def all_deployments(connection: sa.Connection) -> tuple[Deployment, ...]:
    """Return all deployments by name."""
    found = sa.select(deployment, user.c.name.label("user_name")).join(
        user, user.c.id == deployment.c.user_id
    )
    rows = connection.execute(found.order_by(deployment.c.name))
    plain = (Deployment(**row._mapping) for row in rows)
    return tuple(replace(one, previous=tuple(json.loads(str(one.previous)))) for one in plain)


def change_deployment(connection: sa.Connection, number: int, **values: Any) -> None:
    """Change columns of a deployment, and notify the watchers."""
    connection.execute(
        sa.update(deployment).where(deployment.c.id == number).values(**values, changed_ms=now_ms())
    )
    state = {name: value for name, value in values.items() if name == "state"}
    add_event(connection, "deployments", "changed", id=number, **state)
