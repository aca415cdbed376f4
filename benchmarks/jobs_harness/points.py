"""Metric points that the store takes: 64 clients send batches of 500 points and wait for each to be committed.

python benchmarks/jobs.py points [--seconds 5] [--database sqlite|postgresql]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from benchmarks import claims

from weft.jobs.metrics.batches import Report, encode_batch
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.jobs.store.metrics import add_batch

CLIENTS = 64
POINTS = 500  # in a batch
METRICS = 5  # in a batch


def batch(first_step: int) -> list[Report]:
    """Return the points of some steps."""
    steps = range(first_step, first_step + POINTS // METRICS)
    return [
        (f"metric-{name}", step, 1_700_000_000_000 + step, 1.0 / (step + 1))
        for step in steps
        for name in range(METRICS)
    ]


def make_jobs(connection: sa.Connection) -> None:
    """Insert a job for each client."""
    connection.execute(sa.insert(tables.user).values(id=1, name="ann", role="member", created_ms=0))
    rows = [
        {"id": number, "name": "j", "project": "p", "user_id": 1, "kind": "run", "state": "running", "queue": "q",
         "priority": 50, "spec": "{}", "created_ms": 0, "queued_ms": 0}
        for number in range(1, CLIENTS + 1)
    ]  # fmt: skip
    connection.execute(sa.insert(tables.job), rows)


async def send(database: Database, job_id: int, until: float) -> int:
    """Send batches one after the other; return the points that were taken."""
    taken = 0
    while time.perf_counter() < until:
        data, sequence = encode_batch(batch(taken)), taken
        taken += POINTS * await database.write(lambda c: add_batch(c, job_id, "bench", sequence, data))  # noqa: B023
    return taken


async def measure(address: str, seconds: float) -> tuple[float, float]:
    """Return the points taken in a second, and in a second of this process's processor time."""
    database = Database.open(address)
    try:
        await database.write(make_jobs)
        began, used = time.perf_counter(), time.process_time()
        taken = sum(await asyncio.gather(*(send(database, n + 1, began + seconds) for n in range(CLIENTS))))
        return taken / (time.perf_counter() - began), taken / (time.process_time() - used)
    finally:
        database.close()


@contextmanager
def address_of(kind: str) -> Iterator[str]:
    """A fresh database."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        if kind == "sqlite":
            yield f"sqlite:///{folder}/weft.db"
            return
        from benchmarks.jobs_harness.mlflow_door import postgres

        Path(folder).chmod(0o755)
        with postgres(Path(folder) / "postgres") as home:
            yield f"postgresql://weft@/weft?host={home}"


def main(words: list[str]) -> None:
    """Print the figures beside the claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--database", choices=("sqlite", "postgresql"))
    given = parser.parse_args(words)
    measured: dict[str, float] = {}
    for kind in (given.database,) if given.database else ("sqlite", "postgresql"):
        with address_of(kind) as address:
            wall, cpu = asyncio.run(measure(address, given.seconds))
        measured |= {f"points-{kind}": wall, f"points-{kind}-cpu": cpu}
    print(claims.report("jobs_reports", measured))
