"""Reports of jobs: metrics, curves, points, events and findings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.common import NotFinite
from weft.jobs.api.types.reports import (
    CurvesAnswer,
    CurvesQuery,
    CurveView,
    EventsAnswer,
    EventsQuery,
    EventView,
    FindingsAnswer,
    MetricsAnswer,
    OddValue,
    PointsAnswer,
    PointsBody,
)
from weft.jobs.api.views import find, findings_of, show_metric
from weft.jobs.metrics.batches import encode_batch
from weft.jobs.metrics.levels import Buckets
from weft.jobs.store.events import events_after
from weft.jobs.store.metrics import NewBatch, curve, summaries

MOST_CURVES = 100


async def list_metrics(call: ApiCall) -> MetricsAnswer:
    found = await find(call)
    rows = await call.database.read(lambda c: summaries(c, found.id))
    return MetricsAnswer(tuple(map(show_metric, rows)))


async def show_curves(call: ApiCall) -> CurvesAnswer:
    query: CurvesQuery = call.query
    found = await find(call)
    names = list(dict.fromkeys(name for name in query.names.split(",") if name))
    if len(names) > MOST_CURVES:
        raise ApiRefusal(422, f"names must be at most {MOST_CURVES}, got {len(names)}; ask twice")

    def work(connection: sa.Connection) -> tuple[CurveView, ...]:
        wanted = names or [one.name for one in summaries(connection, found.id)][:MOST_CURVES]
        between = {"first_step": query.first_step, "last_step": query.last_step}
        return tuple(
            show_curve(name, curve(connection, found.id, name, **between, most=query.points))
            for name in wanted
        )

    return CurvesAnswer(await call.database.read(work))


def show_curve(name: str, buckets: Buckets) -> CurveView:
    """Return a curve as lists of numbers, null where no value is finite."""
    return CurveView(
        name,
        tuple(buckets.first_step.tolist()),
        tuple(buckets.first_ms.tolist()),
        _finite(buckets.mean),
        _finite(buckets.low),
        _finite(buckets.high),
        tuple(
            OddValue(index, _odd(buckets, index))
            for index in np.flatnonzero(buckets.finite < buckets.count).tolist()
        ),
    )


def _finite(values: NDArray[np.float64]) -> tuple[float | None, ...]:
    return tuple(
        value if ok else None for value, ok in zip(values.tolist(), np.isfinite(values), strict=True)
    )


def _odd(buckets: Buckets, index: int) -> NotFinite:
    if buckets.high[index] == np.inf:
        return "Infinity"
    return "-Infinity" if buckets.low[index] == -np.inf else "NaN"


async def add_points(call: ApiCall) -> PointsAnswer:
    body: PointsBody = call.body
    found = await find(call)
    if call.identity.job_id is None:
        call.identity.check_acts_on(found)
    data = encode_batch((name, step, time_ms, float(value)) for name, step, time_ms, value in body.points)
    new = await call.database.write(NewBatch(found.id, body.source, body.sequence, data))
    if new:
        points: dict[str, list[tuple[int, int, float]]] = {}
        for name, step, time_ms, value in body.points:
            points.setdefault(name, []).append((step, time_ms, float(value)))
        call.state.jobs.points.publish(found.id, points)
    return PointsAnswer(new)


async def list_events(call: ApiCall) -> EventsAnswer:
    query: EventsQuery = call.query
    found = await find(call)
    topics = (f"job:{found.id}",)
    rows = await call.database.read(lambda c: events_after(c, query.after, topics, query.limit))
    return EventsAnswer(tuple(EventView(row.id, row.time_ms, row.kind, row.data) for row in rows))


async def list_findings(call: ApiCall) -> FindingsAnswer:
    found = await find(call)
    return FindingsAnswer(await call.database.read(lambda c: findings_of(c, found.id)))


HANDLERS: Mapping[str, Handler] = {
    "list_metrics": list_metrics,
    "show_curves": show_curves,
    "add_points": add_points,
    "list_events": list_events,
    "list_findings": list_findings,
}
