"""Schedules: jobs of the kind `schedule` are not run, but submitted again and again at the times of a cron line."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.lifecycle import ENDED
from weft.jobs.scheduler.explain import Reason
from weft.jobs.service.attempts.steps import Attempts
from weft.jobs.spec.cron import next_time_ms
from weft.jobs.spec.read import expand, resolve
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.jobs import need_job, spec_of, submit_job
from weft.jobs.store.tables import job


class Schedules:
    """Submits the jobs of all schedules that are due."""

    def __init__(self, database: Database, attempts: Attempts) -> None:
        self._database, self._attempts = database, attempts
        self._waiting: dict[int, int] = {}  # when each schedule is due

    async def look(self, _: object, now_s: float) -> None:
        """Submit the jobs of schedules whose time has come."""
        where = sa.and_(job.c.kind == "schedule", job.c.state == "queued")
        found = sa.select(job.c.id, job.c.not_before_ms).where(where)
        rows = await self._database.read(lambda c: c.execute(found).all())
        self._waiting = {int(row.id): int(row.not_before_ms) for row in rows}
        for schedule, due_ms in self._waiting.items():
            if due_ms <= now_s * 1000:
                await self._attempts.write(partial(submit_due, schedule=schedule))

    def reasons(self) -> dict[int, Reason]:
        """Return when each schedule is due."""
        return {
            schedule: Reason("not yet", "a schedule: it submits a job when it is due", None, due_ms / 1000)
            for schedule, due_ms in self._waiting.items()
        }


def submit_due(connection: sa.Connection, schedule: int) -> tuple[int, ...]:
    """Submit the jobs of a schedule and note when it is due next, both or neither; none while the last ones run."""
    found, spec = need_job(connection, schedule), spec_of(connection, schedule)
    if found.not_before_ms > now_ms() or found.state != "queued" or spec.schedule is None:
        return ()
    following = next_time_ms(spec.schedule, now_ms())
    connection.execute(sa.update(job).where(job.c.id == schedule).values(not_before_ms=following))
    unended = sa.select(job.c.id).where(job.c.parent_id == schedule, job.c.state.not_in(ENDED))
    if before := connection.scalars(unended.where(job.c.kind == "run")).first():
        text = f"left out: job {before} of this schedule still runs"
        add_event(connection, f"job:{schedule}", "note", job=schedule, text=text)
        return ()
    made: list[int] = []
    for part in expand(msgspec.structs.replace(spec, schedule=None)):
        more: dict[str, Any] = {"user_id": found.user_id, "user_name": found.user_name}
        number = submit_job(connection, resolve(part), snapshot=found.snapshot, parent_id=schedule, **more)
        made.append(number)
    add_event(connection, f"job:{schedule}", "note", job=schedule, text="submitted", jobs=made)
    return tuple(made)
