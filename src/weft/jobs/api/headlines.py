"""Headlines: the most telling metric of each job in a list, with a few values for a sparkline, kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

import numpy as np
import sqlalchemy as sa

from weft.jobs.api.types.common import scalar
from weft.jobs.api.types.jobs import Headline
from weft.jobs.lifecycle import ENDED
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.metrics import MetricSummary, curve, summaries
from weft.jobs.store.tables import metric, metric_batch

MOST_VALUES = 32
MOST_KEPT = 20_000
KEPT_S = 2.0  # of a job that runs
BUDGET_S = 0.004  # of one list: the headlines of further jobs are made behind it, for the next one
TOGETHER = 8  # jobs whose headlines are made in one read, so that other reads come between
_TELLING = ("loss", "train_loss", "train/loss", "val_loss", "accuracy", "val_accuracy")


class Headlines:
    """The headlines of jobs; those of ended jobs are made once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._later: dict[int, StoredJob] = {}  # whose headlines are made in the background
        self._filling: asyncio.Task[None] | None = None
        self._kept: OrderedDict[int, tuple[Headline | None, float]] = OrderedDict()

    async def of(self, jobs: Sequence[StoredJob]) -> dict[int, Headline | None]:
        """Return the headlines of some jobs, as far as they are known; the others are made soon."""
        now = monotonic()
        due = [found for found in jobs if self._is_due(found, now)]
        if due:
            left = await self._make(due, BUDGET_S)
            if left:
                self._later.update({found.id: found for found in left})
                if self._filling is None or self._filling.done():
                    self._filling = asyncio.create_task(self._fill(), name="headlines")
        return {found.id: self._kept.get(found.id, (None, 0.0))[0] for found in jobs}

    async def _fill(self) -> None:
        while self._later:
            some = [self._later.pop(number) for number in list(self._later)[:TOGETHER]]
            with suppress(sa.exc.SQLAlchemyError):  # a sparkline less
                await self._make(some, float("inf"))

    async def _make(self, jobs: Sequence[StoredJob], budget_s: float) -> list[StoredJob]:
        """Make headlines for a while; return the jobs that are left."""
        ids = [found.id for found in jobs]
        made = await self._database.read(lambda c: _make(c, ids, budget_s))
        now = monotonic()
        for found in jobs:
            if found.id in made:
                until = float("inf") if found.state in ENDED else now + KEPT_S
                self._kept[found.id] = (made[found.id], until)
                self._kept.move_to_end(found.id)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return [found for found in jobs if found.id not in made]

    async def close(self) -> None:
        """End what is being made."""
        if self._filling is not None:
            self._filling.cancel()
            with suppress(asyncio.CancelledError):
                await self._filling

    def _is_due(self, found: StoredJob, now: float) -> bool:
        if found.kind == "run" and found.attempt == 0:
            return False
        kept = self._kept.get(found.id)
        # A headline that was made while the job ran is made once more after its end.
        return kept is None or kept[1] < now or (found.state not in ENDED and kept[1] == float("inf"))


def _make(connection: sa.Connection, ids: list[int], budget_s: float) -> dict[int, Headline | None]:
    named = set(connection.scalars(sa.select(metric.c.job_id).where(metric.c.job_id.in_(ids)).distinct()))
    fresh = sa.select(metric_batch.c.job_id).where(metric_batch.c.job_id.in_(ids))
    named |= set(connection.scalars(fresh.where(metric_batch.c.data.is_not(None)).distinct()))
    made: dict[int, Headline | None] = {number: None for number in ids if number not in named}
    end = monotonic() + budget_s
    for number in ids:
        if number in named and monotonic() < end:
            made[number] = _headline(connection, number)
    return made


def _headline(connection: sa.Connection, job_id: int) -> Headline | None:
    chosen = choose(summaries(connection, job_id))
    if chosen is None:
        return None
    means = curve(connection, job_id, chosen.name, most=MOST_VALUES).mean
    values = tuple(float(value) if np.isfinite(value) else None for value in means)
    return Headline(chosen.name, scalar(chosen.last), values)


def choose(found: Sequence[MetricSummary]) -> MetricSummary | None:
    """Return the metric that tells most: a loss, an accuracy, else the first that is not the system's."""
    by_name = {one.name: one for one in found if not one.name.startswith("system/")}
    for name in _TELLING:
        if name in by_name:
            return by_name[name]
    named = [one for name, one in by_name.items() if "loss" in name.lower()]
    return next(iter([*named, *by_name.values()]), None)
