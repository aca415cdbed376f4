"""A chart of a million points: the server's part of it, from the store to at most 2,000 buckets.

python benchmarks/jobs.py chart [--points 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from benchmarks import claims
from benchmarks.jobs_harness.points import address_of, make_jobs

from weft.jobs.metrics.batches import encode_batch
from weft.jobs.reports.packer import Packer
from weft.jobs.store.database import Database
from weft.jobs.store.metrics import add_batch, curve

BATCH = 5000


async def measure(address: str, points: int) -> dict[str, float]:
    """Return the processor milliseconds of the whole chart, and of a tenth of it."""
    database = Database.open(address)
    try:
        await database.write(make_jobs)
        for first in range(0, points, BATCH):
            rows = [
                ("loss", step, 1_700_000_000_000 + step, 1 / (step + 1))
                for step in range(first, first + BATCH)
            ]
            data = encode_batch(rows)
            await database.write(lambda c: add_batch(c, 1, "bench", first, data))  # noqa: B023
        await Packer(database).pack(1)
        measured = {}
        for name, steps in (("whole", (None, None)), ("tenth", (points // 2, points // 2 + points // 10))):
            times = []
            for _ in range(20):
                began = time.thread_time()
                found = database.ask(lambda c: curve(c, 1, "loss", first_step=steps[0], last_step=steps[1]))  # noqa: B023
                times.append(1000 * (time.thread_time() - began))
                assert 1000 <= len(found) <= 2000
            measured[f"chart-{name}"] = statistics.median(times)
        return measured
    finally:
        database.close()


def main(words: list[str]) -> None:
    """Print the figures beside the claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    given = parser.parse_args(words)
    with address_of("sqlite") as address:
        print(claims.report("jobs_reports", asyncio.run(measure(address, given.points))))
