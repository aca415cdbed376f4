"""The history of elastic runs: views and recoveries, the ledger's verdict, and the workers for the heat strip."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from weft.elastic.history.ledger import LedgerReport, check
from weft.elastic.history.timeline import changes, ended, read_events
from weft.errors import UsageError
from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import not_found
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.reports import AttemptQuery, LedgerView, RanksAnswer, RankView, TimelineView
from weft.jobs.api.views import find
from weft.jobs.lifecycle import ENDED
from weft.jobs.store.attempts import StoredAttempt, attempts_of
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.metrics import MetricSummary, history, summaries
from weft.text import plural

MOST_ITEMS = 1000
_STEPS = 64  # of each worker in the heat strip
_STEP_METRIC = "step_s"  # the time of a step; other ranks than 0 report it as step_s@3
_EXPOSED = "exposed_share"


async def _attempt(call: ApiCall) -> tuple[StoredJob, StoredAttempt | None]:
    found = await find(call)
    query: AttemptQuery = call.query
    attempts = await call.database.read(lambda c: attempts_of(c, found.id))
    if query.attempt is None:
        return found, attempts[-1] if attempts else None
    chosen = next((one for one in attempts if one.number == query.attempt), None)
    if chosen is None:
        raise not_found(f"attempt {query.attempt} of job {found.id}")
    return found, chosen


async def show_timeline(call: ApiCall) -> TimelineView:
    _, attempt = await _attempt(call)
    items = await asyncio.to_thread(_timeline, Path(attempt.run_dir)) if attempt is not None else None
    return TimelineView(items is not None, items or ())


def _timeline(run_dir: Path) -> tuple[dict[str, Any], ...] | None:
    try:
        events = read_events(run_dir)
    except (UsageError, OSError):
        return None
    if not events:
        return None
    return tuple(one.to_json() | {"ended": ended(events)} for one in changes(events)[-MOST_ITEMS:])


async def show_ledger(call: ApiCall) -> LedgerView:
    found, attempt = await _attempt(call)
    report = await asyncio.to_thread(_ledger, Path(attempt.run_dir)) if attempt is not None else None
    if report is None:
        return LedgerView(False, "none", "the run keeps no ledger", 0, 0, ())
    if isinstance(report, str):
        return LedgerView(True, "broken", report, 0, 0, (report,))
    steps, samples = sum(row.steps for row in report.epochs), sum(row.samples for row in report.epochs)
    problems = tuple(problem.text for problem in report.problems[:100])
    if report.exact:
        text = f"{plural(steps, 'step')} consumed {plural(samples, 'sample')}, each once an epoch"
        return LedgerView(True, "whole" if found.state in ENDED else "running", text, steps, samples, ())
    return LedgerView(True, "broken", plural(len(report.problems), "problem"), steps, samples, problems)


def _ledger(run_dir: Path) -> LedgerReport | str | None:
    """Return the report on a ledger, why it cannot be read, or None where there is none."""
    if not any(run_dir.glob("elastic/*ledger*")) and not any(run_dir.glob("*ledger*")):
        return None
    try:
        return check(run_dir)
    except (UsageError, OSError) as error:
        return str(error)


async def list_ranks(call: ApiCall) -> RanksAnswer:
    found, attempt = await _attempt(call)
    if attempt is None:
        return RanksAnswer((), None)
    hosts = [share.host for share in attempt.shares for _ in range(share.workers)]

    def work(connection: sa.Connection) -> RanksAnswer:
        known = {one.name: one for one in summaries(connection, found.id)}
        ranks = tuple(
            _rank(connection, found.id, rank, host, known.get(_name(rank))) for rank, host in enumerate(hosts)
        )
        exposed = known.get(_EXPOSED)
        share = exposed.last if exposed is not None and exposed.last is not None else None
        return RanksAnswer(ranks, share if share is not None and np.isfinite(share) else None)

    return await call.database.read(work)


def _name(rank: int) -> str:
    return f"{_STEP_METRIC}@{rank}" if rank else _STEP_METRIC


def _rank(
    connection: sa.Connection, job_id: int, rank: int, host: str, known: MetricSummary | None
) -> RankView:
    if known is None:
        return RankView(rank, host, None, ())
    first = max(0, known.points - _STEPS)
    values = history(connection, job_id, known.name, first, _STEPS).values * 1000.0
    finite = values[np.isfinite(values)]
    middle = float(np.median(finite)) if len(finite) else None
    return RankView(rank, host, middle, tuple(v if np.isfinite(v) else None for v in values.tolist()))


HANDLERS: Mapping[str, Handler] = {
    "show_timeline": show_timeline,
    "show_ledger": show_ledger,
    "list_ranks": list_ranks,
}
