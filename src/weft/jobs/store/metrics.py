"""Metrics in the store: batches are added as they come, packed into chunks later, and read from both.

A batch is one row, and adding it again changes nothing, even after it was packed: its row stays, without its points.
Packing moves whole batches into the chunks of their metrics in one transaction, so a reader sees every point once,
whenever a service is killed. Level 0 holds points, the levels
above hold the buckets that are complete; what is not in a bucket yet is read from the level below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from weft.jobs.metrics.batches import merge_batches
from weft.jobs.metrics.columns import EMPTY, Columns, join, pack, unpack
from weft.jobs.metrics.levels import (
    FAN_OUT,
    Buckets,
    buckets_of,
    join_buckets,
    next_level,
    pack_buckets,
    thin,
    unpack_buckets,
)
from weft.jobs.store.tables import metric, metric_batch, metric_chunk

CHUNK = 4096  # points or buckets in a full chunk
TAILED = "tail:"  # begins the sources whose batches a position in `tail` keeps from being added again
TOP_LEVEL = 3  # its buckets cover 262,144 points each


@dataclass(frozen=True)
class MetricSummary:
    """One metric of a job at a glance."""

    name: str
    points: int
    last: float | None
    last_step: int | None
    last_ms: int | None
    lowest: float | None
    highest: float | None


def add_batch(connection: sa.Connection, job_id: int, source: str, sequence: int, data: bytes) -> bool:
    """Keep a batch of points; return False if the source has sent it before."""
    row = {"job_id": job_id, "source": source, "sequence": sequence, "data": data}
    return connection.scalar(_insert_new(connection).returning(metric_batch.c.id), row) is not None


# One message to the server for many batches, in binary: points are not spelled out as text.
_INSERT_MANY = """INSERT INTO metric_batch (job_id, source, sequence, data)
SELECT * FROM unnest(%b::int8[], %b::text[], %b::int8[], %b::bytea[])
ON CONFLICT DO NOTHING RETURNING job_id, source, sequence"""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch of points that is to be kept; many of them are written at once. True: it is new."""

    job_id: int
    source: str
    sequence: int
    data: bytes

    def __call__(self, connection: sa.Connection) -> bool:
        return add_batch(connection, self.job_id, self.source, self.sequence, self.data)

    @classmethod
    def write_all(cls, connection: sa.Connection, works: Sequence[NewBatch]) -> list[bool]:
        """Keep several; of equal ones the first is new."""
        if connection.dialect.name != "postgresql":
            return [one(connection) for one in works]
        columns = ([getattr(one, name) for one in works] for name in ("job_id", "source", "sequence", "data"))
        made = connection.exec_driver_sql(_INSERT_MANY, tuple(columns))
        new = {(row.job_id, row.source, row.sequence) for row in made}
        answers = []
        for one in works:
            key = (one.job_id, one.source, one.sequence)
            answers.append(key in new)
            new.discard(key)
        return answers


def add_batches(connection: sa.Connection, rows: Sequence[tuple[int, str, int, bytes]]) -> None:
    """Keep many batches, given as (job, source, sequence, data)."""
    names = ("job_id", "source", "sequence", "data")
    connection.execute(_insert_new(connection), [dict(zip(names, row, strict=True)) for row in rows])


def _insert_new(connection: sa.Connection) -> Any:
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_postgres

        return insert_postgres(metric_batch).on_conflict_do_nothing()
    from sqlalchemy.dialects.sqlite import insert as insert_sqlite

    return insert_sqlite(metric_batch).on_conflict_do_nothing()


def pack_job(connection: sa.Connection, job_id: int, most: int = 2000) -> int:
    """Move the oldest batches of a job into chunks; return how many there were."""
    # Locked where rows can be: another service that packs them too waits, and then finds them packed.
    rows = connection.execute(_unpacked(job_id).limit(most).with_for_update()).all()
    if not rows:
        return 0
    for name, columns in sorted(merge_batches([row.data for row in rows]).items()):
        _append(connection, _metric_id(connection, job_id, name), columns)
    mine = (
        (metric_batch.c.job_id == job_id)
        & (metric_batch.c.id <= rows[-1].id)
        & metric_batch.c.data.is_not(None)
    )
    connection.execute(sa.delete(metric_batch).where(mine, metric_batch.c.source.startswith(TAILED)))
    connection.execute(sa.update(metric_batch).where(mine).values(data=None))
    return len(rows)


def jobs_to_pack(connection: sa.Connection) -> list[int]:
    """Return the jobs that have batches which are not packed."""
    found = sa.select(metric_batch.c.job_id).where(metric_batch.c.data.is_not(None)).distinct()
    return list(connection.scalars(found))


def _unpacked(job_id: int) -> sa.Select[tuple[int, bytes]]:
    found = sa.select(metric_batch.c.id, metric_batch.c.data)
    return found.where(metric_batch.c.job_id == job_id, metric_batch.c.data.is_not(None)).order_by(
        metric_batch.c.id
    )


def unpacked_batches(connection: sa.Connection, job_id: int) -> list[tuple[int, bytes]]:
    """Return the batches of a job that are not packed, with their ids, the oldest first."""
    return [(row.id, row.data) for row in connection.execute(_unpacked(job_id))]


def newer_batches(connection: sa.Connection, after: Mapping[int, int]) -> list[tuple[int, int, bytes]]:
    """Return batches that are not packed as (id, job, data), the oldest first: of each job those after its number."""
    unpacked = metric_batch.c.data.is_not(None)
    last = sa.select(metric_batch.c.job_id, sa.func.max(metric_batch.c.id)).where(
        metric_batch.c.job_id.in_(sorted(after)), unpacked
    )
    newest = connection.execute(last.group_by(metric_batch.c.job_id))
    wanted = {job_id: after[job_id] for job_id, number in newest if number > after[job_id]}
    if not wanted:
        return []
    found = sa.select(metric_batch.c.id, metric_batch.c.job_id, metric_batch.c.data).where(
        metric_batch.c.job_id.in_(sorted(wanted)), metric_batch.c.id > min(wanted.values()), unpacked
    )
    rows = connection.execute(found.order_by(metric_batch.c.id))
    return [(row.id, row.job_id, row.data) for row in rows if row.id > wanted[row.job_id]]


def packed_totals(connection: sa.Connection, jobs: Sequence[int]) -> dict[int, int]:
    """Return how many points of all metrics each of some jobs has in chunks; it only grows."""
    found = sa.select(metric.c.job_id, sa.func.sum(metric.c.points)).where(metric.c.job_id.in_(jobs))
    return {row[0]: int(row[1]) for row in connection.execute(found.group_by(metric.c.job_id))}


def packed_points(connection: sa.Connection, job_id: int, name: str, first: int) -> tuple[Columns, int]:
    """Return the packed points of a metric from a number on, and how many are packed in all."""
    row = _row(connection, job_id, name)
    if row is None:
        return EMPTY, 0
    count = int(row.points)
    return (_read_points(connection, row.id, first, count) if first < count else EMPTY), count


def _metric_id(connection: sa.Connection, job_id: int, name: str) -> int:
    mine = sa.select(metric.c.id).where(metric.c.job_id == job_id, metric.c.name == name)
    found = connection.scalar(mine)
    if found is None:
        new = sa.insert(metric).values(job_id=job_id, name=name).returning(metric.c.id)
        found = connection.execute(new).scalar_one()
    return int(found)


# -- packing ----------------------------------------------------------------------------------------------------------


def _append(connection: sa.Connection, metric_id: int, columns: Columns) -> None:
    """Add points to a metric: to its chunks, to the levels above, and to its summary."""
    row = connection.execute(sa.select(metric).where(metric.c.id == metric_id)).one()
    before, after = int(row.points), int(row.points) + len(columns)
    start = before - before % CHUNK
    points = join([_read_points(connection, metric_id, start), columns])
    _write_chunks(connection, metric_id, 0, start, points)
    below = buckets_of(points)
    for level in range(1, TOP_LEVEL + 1):
        covered = FAN_OUT**level
        first, end = (
            before // covered,
            after // covered,
        )  # of the buckets that are complete now and were not before
        if first == end:
            break
        new = next_level(below.slice(first * FAN_OUT - start, end * FAN_OUT - start))
        start = first - first % CHUNK
        below = join_buckets([*_read_buckets(connection, metric_id, level, start), new])
        _write_chunks(connection, metric_id, level, start, below)
    summary = asdict(_summary(row.name, row, columns))
    connection.execute(sa.update(metric).where(metric.c.id == metric_id).values(summary))


def _write_chunks(
    connection: sa.Connection, metric_id: int, level: int, start: int, items: Columns | Buckets
) -> None:
    """Replace the chunks of a level from `start` on, which is where a chunk begins."""
    mine = (metric_chunk.c.metric_id == metric_id) & (metric_chunk.c.level == level)
    connection.execute(sa.delete(metric_chunk).where(mine, metric_chunk.c.first >= start))
    rows = []
    for offset in range(0, len(items), CHUNK):
        part = items.slice(offset, offset + CHUNK)
        steps = (part.steps, part.steps) if isinstance(part, Columns) else (part.first_step, part.last_step)
        rows.append(
            {
                "metric_id": metric_id,
                "level": level,
                "first": start + offset,
                "count": len(part),
                "first_step": int(steps[0].min()),
                "last_step": int(steps[1].max()),
                "data": pack(part) if isinstance(part, Columns) else pack_buckets(part),
            }
        )
    connection.execute(sa.insert(metric_chunk), rows)


# -- reading ----------------------------------------------------------------------------------------------------------


def _chunks(metric_id: int, level: int, start: int) -> sa.Select[Any]:
    found = sa.select(metric_chunk).where(
        metric_chunk.c.metric_id == metric_id, metric_chunk.c.level == level
    )
    return found.where(metric_chunk.c.first + metric_chunk.c.count > start).order_by(metric_chunk.c.first)


def _read_points(connection: sa.Connection, metric_id: int, start: int, end: int | None = None) -> Columns:
    """Return the packed points from a number on."""
    wanted = _chunks(metric_id, 0, start)
    rows = connection.execute(wanted if end is None else wanted.where(metric_chunk.c.first < end)).all()
    if not rows:
        return EMPTY
    points = join([unpack(row.data) for row in rows])
    return points.slice(start - rows[0].first, (end or rows[0].first + len(points)) - rows[0].first)


def _read_buckets(connection: sa.Connection, metric_id: int, level: int, start: int) -> list[Buckets]:
    """Return the packed buckets of a level from a number on, as none or one part."""
    rows = connection.execute(_chunks(metric_id, level, start)).all()
    if not rows:
        return []
    buckets = join_buckets([unpack_buckets(row.data) for row in rows])
    return [buckets.slice(start - rows[0].first, len(buckets))]


def summaries(connection: sa.Connection, job_id: int) -> tuple[MetricSummary, ...]:
    """Return all metrics of a job, by name; points that are not packed count, too."""
    known = {row.name: row for row in connection.execute(sa.select(metric).where(metric.c.job_id == job_id))}
    fresh = merge_batches([row.data for row in connection.execute(_unpacked(job_id))])
    return tuple(_summary(name, known.get(name), fresh.get(name, EMPTY)) for name in sorted({*known, *fresh}))


def _summary(name: str, row: Any, fresh: Columns) -> MetricSummary:
    if not len(fresh):
        return MetricSummary(name, row.points, row.last, row.last_step, row.last_ms, row.lowest, row.highest)
    finite = fresh.values[np.isfinite(fresh.values)]
    lows = [] if row is None or row.lowest is None else [row.lowest]
    highs = [] if row is None or row.highest is None else [row.highest]
    if len(finite):
        lows.append(float(finite.min()))
        highs.append(float(finite.max()))
    return MetricSummary(
        name,
        (row.points if row is not None else 0) + len(fresh),
        float(fresh.values[-1]),
        int(fresh.steps[-1]),
        int(fresh.times_ms[-1]),
        min(lows, default=None),
        max(highs, default=None),
    )


def history(connection: sa.Connection, job_id: int, name: str, first: int = 0, most: int = 25_000) -> Columns:
    """Return points of a metric in the order they came, from a number on."""
    row = _row(connection, job_id, name)
    packed = _read_points(connection, row.id, first, first + most) if row is not None else EMPTY
    if len(packed) == most:
        return packed
    fresh = merge_batches([batch.data for batch in connection.execute(_unpacked(job_id))]).get(name, EMPTY)
    skipped = max(0, first - (int(row.points) if row is not None else 0))
    return join([packed, fresh.slice(skipped, skipped + most - len(packed))])


def curve(
    connection: sa.Connection,
    job_id: int,
    name: str,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
    most: int = 2000,
) -> Buckets:
    """Return a metric between two steps in at most a given number of buckets, spikes included."""
    row = _row(connection, job_id, name)
    low = -(2**63) if first_step is None else first_step
    high = 2**63 - 1 if last_step is None else last_step
    parts = _parts(connection, row, low, high, most) if row is not None else []
    fresh = merge_batches([batch.data for batch in connection.execute(_unpacked(job_id))]).get(name, EMPTY)
    inside = [
        part.where((part.last_step >= low) & (part.first_step <= high))
        for part in (*parts, buckets_of(fresh))
    ]
    return thin(join_buckets(inside), most)


def _row(connection: sa.Connection, job_id: int, name: str) -> Any:
    return connection.execute(
        sa.select(metric).where(metric.c.job_id == job_id, metric.c.name == name)
    ).one_or_none()


def _counts(connection: sa.Connection, inside: Any, low: int, high: int) -> dict[int, float]:
    """Return about how many buckets each level has between two steps."""
    named = metric_chunk.c
    counts: dict[int, float] = {}
    for chunk in connection.execute(
        sa.select(named.level, named.count, named.first_step, named.last_step).where(*inside)
    ):
        covered = min(high, chunk.last_step) - max(low, chunk.first_step) + 1
        share = covered / (chunk.last_step - chunk.first_step + 1)
        counts[chunk.level] = counts.get(chunk.level, 0.0) + share * chunk.count
    return counts


def _parts(connection: sa.Connection, row: Any, low: int, high: int, most: int) -> list[Buckets]:
    """Return buckets of the coarsest level that is fine enough, then what is newer from the levels below."""
    inside = (
        metric_chunk.c.metric_id == row.id,
        metric_chunk.c.last_step >= low,
        metric_chunk.c.first_step <= high,
    )
    level = max(
        (level for level, count in _counts(connection, inside, low, high).items() if count >= most), default=0
    )
    parts: list[Buckets] = []
    start = 0  # number of the first bucket of this level that no level above has
    while level >= 0:
        found = _chunks(row.id, level, start).where(*inside)
        for chunk in connection.execute(found):
            part = buckets_of(unpack(chunk.data)) if level == 0 else unpack_buckets(chunk.data)
            parts.append(part.slice(max(0, start - chunk.first), len(part)))
        start = int(row.points) // FAN_OUT**level * FAN_OUT
        level -= 1
    return parts
