"""Points of the jobs of a study, read from the store as they come: each once, and only those that are new.

A reader remembers how many points of a job it has given, the newest batch that it has read, and how many points of the
job were packed by then. While that number stays, all its batches are still there, and only newer ones are read. Once
batches were packed, the place is found again by counting: packing keeps the order of points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from weft.jobs.metrics.batches import merge_batches
from weft.jobs.metrics.columns import EMPTY, Columns, join
from weft.jobs.store.metrics import newer_batches, packed_points, packed_totals, unpacked_batches


@dataclass
class PointPlace:
    """A place in the points of one job: how far it was read."""

    given: int = 0  # points of the metric that were given
    packed: int = -1  # points of all metrics of the job that were packed then; -1: not read yet
    newest: int = 0  # batch that was read


class PointReader:
    """Reads one metric of many jobs; one question for all of them finds out which have been packed."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._places: dict[int, PointPlace] = {}

    def given(self, job_id: int) -> int:
        """Return how many points of a job were given so far."""
        place = self._places.get(job_id)
        return 0 if place is None else place.given

    def new_points(self, connection: sa.Connection, jobs: Iterable[int]) -> dict[int, Columns]:
        """Return the points of each job that have come since the last call, in the order in which they came."""
        wanted = list(jobs)
        before = packed_totals(connection, wanted)
        known = {
            job_id: place.newest
            for job_id in wanted
            if (place := self._places.get(job_id)) and place.packed == before.get(job_id, 0)
        }
        read = self._read_on(connection, known)
        read |= {job_id: self._read_by_count(connection, job_id) for job_id in wanted if job_id not in known}
        # Where statements see each other's commits, batches may have been packed between two of these.
        after = packed_totals(connection, wanted)
        found: dict[int, Columns] = {}
        for job_id, (columns, newest) in read.items():
            packed = before.get(job_id, 0)
            if packed != after.get(job_id, 0):
                continue  # the next call reads it by counting
            given = self.given(job_id) + len(columns)
            self._places[job_id] = PointPlace(given, packed, newest)
            found[job_id] = columns
        return found

    def _read_on(self, connection: sa.Connection, known: Mapping[int, int]) -> dict[int, tuple[Columns, int]]:
        """Return new points of jobs whose places are known, and the newest batch of each."""
        parts: dict[int, list[bytes]] = {job_id: [] for job_id in known}
        # A place is a number of the job's own batches: SQLite gives those that were packed to other jobs again.
        newest = dict(known)
        for number, job_id, data in newer_batches(connection, known):
            parts[job_id].append(data)
            newest[job_id] = number
        return {job_id: (self._fresh(batches), newest[job_id]) for job_id, batches in parts.items()}

    def _read_by_count(self, connection: sa.Connection, job_id: int) -> tuple[Columns, int]:
        """Return new points of one job and its newest batch, after as many points as were given."""
        given = self.given(job_id)
        rows = unpacked_batches(connection, job_id)
        older, count = packed_points(connection, job_id, self._metric, given)
        fresh = self._fresh([data for _, data in rows])
        skipped = max(0, given - count)
        return join([older, fresh.slice(skipped, len(fresh))]), rows[-1][0] if rows else 0

    def _fresh(self, batches: Sequence[bytes]) -> Columns:
        return merge_batches(batches).get(self._metric, EMPTY)
