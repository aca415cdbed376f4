"""Hosts in the store: what each has, its labels, and whether it may take new workers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.scheduler.model import HostCapacity, Resources
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.tables import host
from weft.topology.host import Host


@dataclass(frozen=True)
class StoredHost:
    """One host as the store knows it."""

    name: str
    state: str  # up, drained, lost
    labels: frozenset[str]
    rack: str
    total: Resources
    topology: Host | None
    seen_ms: int | None
    message: str | None

    @property
    def capacity(self) -> HostCapacity:
        """The host as the scheduler sees it."""
        return HostCapacity(self.name, self.total, self.rack, self.labels, self.state == "up")


def capacity_of(found: Host) -> Resources:
    """Return what a host has: logical processors, bytes of memory, accelerators."""
    cpus = sum(len(core.cpus) for core in found.cores)
    return Resources(float(cpus), float(found.memory_bytes), float(len(found.accelerators)))


def replace_open(known: StoredHost) -> HostCapacity:
    """Return a host as it would be if it were up, which it may be again when a job's turn comes."""
    return HostCapacity(known.name, known.total, known.rack, known.labels)


def put_host(
    connection: sa.Connection, name: str, found: Host, *, labels: Collection[str] = (), rack: str = ""
) -> None:
    """Add a host that has answered, or note what a known one has now; what is not named, and a drain, stays."""
    total = capacity_of(found)
    row: dict[str, Any] = {
        "capacity": msgspec.json.encode(total).decode(),
        "topology": msgspec.json.encode(found.to_json()).decode(),
        "seen_ms": now_ms(),
    }
    known = connection.execute(sa.select(host).where(host.c.name == name)).one_or_none()
    if known is None:
        marks = msgspec.json.encode(sorted(labels)).decode()
        connection.execute(
            sa.insert(host), row | {"name": name, "state": "up", "labels": marks, "rack": rack}
        )
        add_event(connection, "hosts", "changed", host=name, state="up")
        return
    back = known.state == "lost"
    if back:
        row |= {"state": "up", "message": None}
    if labels:
        row["labels"] = msgspec.json.encode(sorted(labels)).decode()
    if rack:
        row["rack"] = rack
    connection.execute(sa.update(host).where(host.c.name == name).values(row))
    if back or labels or rack or known.capacity != row["capacity"]:
        add_event(connection, "hosts", "changed", host=name, state="up" if back else known.state)


def change_host(connection: sa.Connection, name: str, **changes: Any) -> None:
    """Change columns of a host and tell of it; `labels` is a collection of words."""
    if "labels" in changes:
        changes["labels"] = msgspec.json.encode(sorted(changes["labels"])).decode()
    done = connection.execute(sa.update(host).where(host.c.name == name).values(changes))
    if not done.rowcount:
        raise _unknown(connection, name)
    add_event(connection, "hosts", "changed", host=name, **changes)


def remove_host(connection: sa.Connection, name: str) -> None:
    """Forget a host."""
    if not connection.execute(sa.delete(host).where(host.c.name == name)).rowcount:
        raise _unknown(connection, name)
    add_event(connection, "hosts", "changed", host=name, state="removed")


def list_hosts(connection: sa.Connection) -> tuple[StoredHost, ...]:
    """Return all hosts by name."""
    return tuple(map(_stored, connection.execute(sa.select(host).order_by(host.c.name))))


def _stored(row: Any) -> StoredHost:
    return StoredHost(
        row.name,
        row.state,
        frozenset(msgspec.json.decode(row.labels)),
        row.rack,
        msgspec.json.decode(row.capacity, type=Resources),
        Host.from_json(msgspec.json.decode(row.topology)) if row.topology else None,
        row.seen_ms,
        row.message,
    )


class HostNotFound(UsageError, LookupError):  # noqa: N818 (the name of the answer: 404)
    """A host that the service does not know."""


def _unknown(connection: sa.Connection, name: str) -> HostNotFound:
    known = ", ".join(connection.scalars(sa.select(host.c.name).order_by(host.c.name))) or "none"
    return HostNotFound(f"a host must be one that was added, got {name!r}; there is {known}")
