"""The lease of scheduling: of several services on one database, the one that holds it decides, the others serve.

The lease is a row with a holder, an epoch and an end, in the database's own time. Taking it over adds one to the epoch.
Every write of the dispatcher checks in its own transaction that the epoch is still the one it was given, so that a
service that was stopped for a while and wakes up as the former holder can change nothing.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from weft.errors import WeftError
from weft.jobs.service.attempts.processes import boot_id, is_alive, started_ticks
from weft.jobs.store.tables import lease

NAME = "scheduler"
LEASE_MS = 5000


class LeaseLost(WeftError):  # noqa: N818 (it is news, not a mistake)
    """Another service has taken over the scheduling."""


@dataclass(frozen=True)
class Lease:
    """A lease that was given: every write of its holder names the epoch."""

    holder: str
    epoch: int

    def check(self, connection: sa.Connection) -> None:
        """Refuse to go on with a transaction after somebody else has taken over; they wait until it is done."""
        found = connection.execute(
            sa.select(lease.c.epoch, lease.c.holder).where(lease.c.name == NAME).with_for_update(read=True)
        ).one_or_none()
        if found is None or (found.epoch, found.holder) != (self.epoch, self.holder):
            raise LeaseLost(f"the scheduling must be ours (epoch {self.epoch}), got {found}")


def new_holder() -> str:
    """Return a name for this process that tells whether it lives to others on the same machine."""
    return f"{boot_id()}:{os.getpid()}:{started_ticks(os.getpid())}:{secrets.token_hex(4)}"


def take(connection: sa.Connection, holder: str, lease_ms: int = LEASE_MS) -> Lease | None:
    """Take or renew the lease; None while another service holds it."""
    now = database_now_ms(connection)
    found = connection.execute(sa.select(lease).where(lease.c.name == NAME).with_for_update()).one_or_none()
    if found is None:
        row = {"name": NAME, "holder": holder, "epoch": 1, "until_ms": now + lease_ms}
        connection.execute(sa.insert(lease), row)
        return Lease(holder, 1)
    if found.holder != holder and found.until_ms > now and not _is_dead(found.holder):
        return None
    epoch = found.epoch + (found.holder != holder)
    changed = {"holder": holder, "epoch": epoch, "until_ms": now + lease_ms}
    connection.execute(sa.update(lease).where(lease.c.name == NAME).values(changed))
    return Lease(holder, epoch)


def give_up(connection: sa.Connection, holder: str) -> None:
    """Let the lease end now, so that another service need not wait."""
    mine = sa.and_(lease.c.name == NAME, lease.c.holder == holder)
    connection.execute(sa.update(lease).where(mine).values(until_ms=0))


def _is_dead(holder: str) -> bool:
    """Return whether a holder was a process of this machine that is gone."""
    boot, pid, ticks, _ = holder.split(":")
    return boot == boot_id() and not is_alive(int(pid), int(ticks))


def database_now_ms(connection: sa.Connection) -> int:
    """Return the database's own time, which all services share."""
    if connection.dialect.name == "postgresql":
        text = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    else:
        text = (
            "SELECT CAST(strftime('%s','now') AS INTEGER) * 1000 "
            "+ CAST(substr(strftime('%f','now'), 4) AS INTEGER)"
        )
    return int(connection.exec_driver_sql(text).scalar_one())
