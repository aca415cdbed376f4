"""Use of the cluster by users, which decays with time, for the fair share; and quotas.

The use of a user is a sum of (share of the cluster) x seconds in which each second counts half after a half-life. Who
held all of the cluster for ever has half-life / ln 2 of it, which is a usage of 1 to the scheduler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import sqlalchemy as sa

from weft.jobs.scheduler.decide import Scheduler
from weft.jobs.scheduler.model import Policy, Resources
from weft.jobs.service.attempts.steps import Attempts
from weft.jobs.service.config import ServiceConfig
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.tables import quota, usage, user


class HasScheduler(Protocol):
    """The part of the dispatcher that accounts are made from."""

    @property
    def scheduler(self) -> Scheduler: ...


class Accounts:
    """Adds up what users hold, and tells the scheduler."""

    def __init__(self, config: ServiceConfig, database: Database, attempts: Attempts) -> None:
        self._config, self._database, self._attempts = config, database, attempts
        self._last_s: float | None = None

    async def look(self, dispatcher: HasScheduler, now_s: float) -> None:
        """Account for the time since the last look, if that is long enough ago."""
        if self._last_s is not None and now_s - self._last_s < self._config.account_s:
            return
        passed_s = 0.0 if self._last_s is None else min(now_s - self._last_s, 10 * self._config.account_s)
        self._last_s = now_s
        held = {name: share * passed_s for name, share in dispatcher.scheduler.held.items() if share > 0}
        half_life_s = self._config.usage_half_life_s
        if held and passed_s:
            await self._attempts.write(lambda c: add_usage(c, held, half_life_s))
        dispatcher.scheduler.usage = await self._database.read(lambda c: usage_of_all(c, half_life_s))


def add_usage(connection: sa.Connection, held: dict[str, float], half_life_s: float) -> None:
    """Add cluster-seconds to what users have used, after letting the older ones decay."""
    at = now_ms()
    found = sa.select(user.c.id, user.c.name, usage.c.amount, usage.c.at_ms).select_from(
        user.join(usage, usage.c.user_id == user.c.id, isouter=True)
    )
    for row in connection.execute(found.where(user.c.name.in_(held))).all():
        if row.amount is None:
            new = {"user_id": row.id, "amount": held[row.name], "at_ms": at}
            connection.execute(sa.insert(usage), new)
        else:
            amount = decayed(row.amount, (at - row.at_ms) / 1000, half_life_s) + held[row.name]
            mine = usage.c.user_id == row.id
            connection.execute(sa.update(usage).where(mine).values(amount=amount, at_ms=at))


def usage_of_all(connection: sa.Connection, half_life_s: float) -> dict[str, float]:
    """Return the decayed use of each user, 1 for who held all of the cluster for ever."""
    at, whole_s = now_ms(), half_life_s / math.log(2)
    found = sa.select(user.c.name, usage.c.amount, usage.c.at_ms).join(user, user.c.id == usage.c.user_id)
    return {
        row.name: decayed(row.amount, (at - row.at_ms) / 1000, half_life_s) / whole_s
        for row in connection.execute(found)
    }


def decayed(amount: float, passed_s: float, half_life_s: float) -> float:
    """Return what is left of an amount after a time."""
    return float(amount * 0.5 ** (max(0.0, passed_s) / half_life_s))


def set_quota(
    connection: sa.Connection, user_id: int, *, weight: float = 1.0, most: Resources | None = None
) -> None:
    """Give a user a weight in the fair share, and a limit to what they hold at a time; infinite where not limited."""
    connection.execute(sa.delete(quota).where(quota.c.user_id == user_id))
    amounts = {
        name: value if (value := getattr(most, name, math.inf)) < math.inf else None
        for name in ("cpus", "memory_bytes", "gpus")
    }
    connection.execute(sa.insert(quota), {"user_id": user_id, "weight": weight, **amounts})
    add_event(connection, "quotas", "changed", user=user_id)


@dataclass(frozen=True)
class StoredQuota:
    """The weight and the limits of one user; None where there is no limit."""

    weight: float = 1.0
    cpus: float | None = None
    memory_bytes: float | None = None
    gpus: float | None = None


def quotas_of_all(connection: sa.Connection) -> dict[int, StoredQuota]:
    """Return the quota of each user who has one, by the user's number."""
    return {
        row.user_id: StoredQuota(row.weight, row.cpus, row.memory_bytes, row.gpus)
        for row in connection.execute(sa.select(quota))
    }


def policy_with_quotas(connection: sa.Connection, policy: Policy) -> Policy:
    """Return a policy with the weights and quotas of all users."""
    found = connection.execute(sa.select(quota, user.c.name).join(user, user.c.id == quota.c.user_id)).all()
    limits = {
        row.name: Resources(
            *(math.inf if value is None else float(value) for value in (row.cpus, row.memory_bytes, row.gpus))
        )
        for row in found
    }
    limited = {name: most for name, most in limits.items() if most != Resources(math.inf, math.inf, math.inf)}
    return replace(policy, weights={row.name: float(row.weight) for row in found}, quotas=limited)
