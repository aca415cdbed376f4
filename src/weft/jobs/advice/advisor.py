"""The advisor: looks at every running job about every ten seconds, keeps what its rules find, and acts where it may.

A finding is told once, as an event of the job, and kept with the times at which it was seen first and last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa

from weft.errors import WeftError
from weft.jobs.advice.evidence import gather_evidence
from weft.jobs.advice.model import SCRIPT_ACTIONS, ActionName, Finding
from weft.jobs.advice.rules import advise
from weft.jobs.advice.settings import AdviceSettings, settings_of
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.tables import finding, job

LOOK_S = 10.0  # between two looks at a job
_log = logging.getLogger("weft.jobs.advice")
USER = "advice"  # who acts, in the audit


class Deliver(Protocol):
    """Hands an action to the script of an attempt, as `JobService.deliver` does."""

    def __call__(self, job_id: int, attempt: int, found: Finding, action: ActionName) -> Awaitable[None]: ...


class TakeAction(Protocol):
    """Acts on a job, as `JobService.act` does."""

    def __call__(self, job_id: int, action: str, *, user_name: str, **arguments: Any) -> Awaitable[None]: ...


@dataclass(frozen=True)
class AdvisedJob:
    """A running job, and since when this attempt at it runs."""

    job_id: int
    attempt: int
    since_ms: int
    spec: JobSpec


class Advisor:
    """Advises the jobs that `running_jobs` gives."""

    def __init__(
        self,
        database: Database,
        running_jobs: Callable[[], Iterable[AdvisedJob]],
        act: TakeAction,
        deliver: Deliver,
    ) -> None:
        self._database, self._running_jobs, self._act, self._deliver = database, running_jobs, act, deliver

    async def run(self) -> None:
        """Advise for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            for advised in list(self._running_jobs()):
                try:
                    await self.look(advised)
                except Exception:
                    _log.exception("job %d could not be judged", advised.job_id)

    async def look(self, advised: AdvisedJob) -> tuple[Finding, ...]:
        """Judge one job, keep what was found, and act where its owner allows that; return the findings."""
        settings = settings_of(advised.spec.advice)
        found = await self._database.read(lambda c: _judge(c, advised, settings))
        if found:
            new = await self._database.write(lambda c: keep_findings(c, advised.job_id, found))
            for one in new:
                action = settings.action_of(one.rule, one.actions)
                if action is not None:
                    await self._take(advised, one, action)
        return found

    async def _take(self, advised: AdvisedJob, found: Finding, action: ActionName) -> None:
        job_id = advised.job_id
        try:
            if action in SCRIPT_ACTIONS:
                await self._deliver(job_id, advised.attempt, found, action)
            elif action == "retry":
                await self._act(job_id, "restart", user_name=USER, why=found.text)
            elif action == "shrink":
                workers = await self._database.read(lambda c: _fewer_workers(c, job_id))
                await self._act(job_id, "scale", user_name=USER, workers=workers)
            else:
                await self._act(job_id, action, user_name=USER)
        except (WeftError, OSError) as error:  # its state, or its folder, does not allow that
            text = str(error)
            await self._database.write(
                lambda c: add_event(c, f"job:{job_id}", "note", job=job_id, text=f"{found.rule}: {text}")
            )
            return
        await self._database.write(lambda c: note_action(c, job_id, found, action))


def _judge(connection: sa.Connection, advised: AdvisedJob, settings: AdviceSettings) -> tuple[Finding, ...]:
    evidence = gather_evidence(
        connection,
        advised.job_id,
        since_ms=advised.since_ms,
        now_ms=now_ms(),
        restarted=advised.attempt > 1,
    )
    return tuple(one for one in advise(evidence, settings.thresholds) if one.rule not in settings.off)


def _fewer_workers(connection: sa.Connection, job_id: int) -> int:
    row = connection.execute(sa.select(job.c.workers, job.c.min_workers).where(job.c.id == job_id)).one()
    return max(int(row.min_workers or 1), int(row.workers) // 2, 1)


# -- the store --------------------------------------------------------------------------------------------------------


def keep_findings(connection: sa.Connection, job_id: int, found: Iterable[Finding]) -> list[Finding]:
    """Keep findings; return those that are new, of which watchers are told."""
    known = set(connection.scalars(sa.select(finding.c.rule).where(finding.c.job_id == job_id)))
    at, new = now_ms(), []
    for one in found:
        values = {
            "severity": one.severity,
            "text": one.text,
            "evidence": msgspec.json.encode(dict(one.evidence)).decode(),
            "last_ms": at,
        }
        if one.rule in known:
            mine = (finding.c.job_id == job_id) & (finding.c.rule == one.rule)
            connection.execute(sa.update(finding).where(mine).values(values))
        else:
            connection.execute(sa.insert(finding).values(job_id=job_id, rule=one.rule, first_ms=at, **values))
            _tell(connection, job_id, one)
            new.append(one)
    return new


def note_action(connection: sa.Connection, job_id: int, found: Finding, action: str) -> None:
    """Keep the action that was taken on a finding."""
    mine = (finding.c.job_id == job_id) & (finding.c.rule == found.rule)
    connection.execute(sa.update(finding).where(mine).values(action=action))
    _tell(connection, job_id, found, action)


def _tell(connection: sa.Connection, job_id: int, found: Finding, action: str | None = None) -> None:
    facts = {"rule": found.rule, "severity": found.severity, "text": found.text, "action": action}
    add_event(connection, f"job:{job_id}", "finding", job=job_id, **facts)
