"""The jobs page of 10,000 jobs: the time of GET /jobs, for many filters, sorts and pages, over HTTP.

    python benchmarks/jobs.py list --jobs 10000 --rounds 30

A fifth of the jobs wait, some run, the others have ended; 300 of them have curves, which the page shows as sparklines.
Each request is made by one client over one connection; the time is that of the whole answer.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import sqlalchemy as sa
from benchmarks import claims
from benchmarks.jobs_harness.service import quantile, service, summary

from weft.jobs.metrics.batches import encode_batch
from weft.jobs.spec.model import JobSpec, QueueSpec, ResourceSpec
from weft.jobs.store.database import Database
from weft.jobs.store.metrics import add_batch, pack_job
from weft.jobs.store.tables import job, tag, user

FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"limit": 200},
    {"state": "queued"},
    {"state": "running,starting,staging"},
    {"state": "failed", "project": "vision"},
    {"user": "user-3"},
    {"q": "digits"},
    {"q": "zebra"},
    {"q": "lr=0.1"},
    {"q": "777"},
    {"sort": "name"},
    {"sort": "-priority", "state": "queued", "limit": 200},
    {"sort": "-started"},
    {"project": "text", "user": "user-1", "q": "net", "sort": "-ended"},
)

WARM = 3  # rounds before those that count


def fill(database: Database, count: int) -> None:
    """Write jobs straight into the store."""
    draw = random.Random(1)
    now = time.time_ns() // 1_000_000
    people = [{"id": n + 100, "name": f"user-{n}", "role": "member", "created_ms": now} for n in range(20)]
    rows: list[dict[str, Any]] = []
    tags: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        state = draw.choices(("queued", "running", "completed", "failed", "stopped"), (20, 1, 60, 15, 4))[0]
        made = now - (count - number) * 60_000
        ended = state in ("completed", "failed", "stopped")
        # Those that wait ask for more than there is, so that they wait on; those that run are only tracked.
        spec = JobSpec(
            "train.py", resources=ResourceSpec(gpus=64.0), queue=QueueSpec(priority=draw.randrange(100))
        )
        rows.append(
            {
                "id": number, "name": f"{draw.choice(('digits', 'net', 'words', 'trees'))}-{number}",
                "project": draw.choice(("vision", "text", "tables")), "user_id": 100 + draw.randrange(20),
                "kind": "tracked" if state == "running" else "run", "state": state, "queue": "default",
                "priority": spec.queue.priority, "spec": msgspec.json.encode(spec).decode(), "attempt": int(ended),
                "workers": 0, "min_workers": 1, "max_workers": 1, "created_ms": made, "queued_ms": made,
                "started_ms": made + 1000 if ended or state == "running" else None,
                "ended_ms": made + 50_000 if ended else None,
            }
        )  # fmt: skip
        tags += [{"job_id": number, "name": "lr", "value": draw.choice(("0.1", "0.01"))},
                 {"job_id": number, "name": "note", "value": f"run {number}"}]  # fmt: skip
    database.submit(lambda c: c.execute(sa.insert(user), people)).result()
    for start in range(0, count, 1000):
        part, marks = rows[start : start + 1000], tags[2 * start : 2 * start + 2000]
        database.submit(lambda c, part=part: c.execute(sa.insert(job), part)).result()  # type: ignore[misc]
        database.submit(lambda c, marks=marks: c.execute(sa.insert(tag), marks)).result()  # type: ignore[misc]
    curves = encode_batch(("loss", step, now + step, 1 / (step + 1)) for step in range(2000))
    for number in [row["id"] for row in rows if row["started_ms"]][-300:]:
        database.submit(lambda c, number=number: add_batch(c, number, "b", 1, curves)).result()  # type: ignore[misc]
        database.submit(lambda c, number=number: pack_job(c, number)).result()  # type: ignore[misc]


def measure(count: int, rounds: int) -> tuple[dict[str, list[float]], float]:
    """Return the seconds of each request, by filter, and the service's mean processor seconds for one."""
    found: dict[str, list[float]] = {str(query): [] for query in FILTERS}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        database = Database.open(f"sqlite:///{data}/weft.db")
        fill(database, count)
        database.submit(lambda c: c.execute(sa.text("ANALYZE"))).result()
        database.close()
        with service(data) as running, httpx.Client(headers=running.headers, timeout=60) as client:
            used_s = 0.0
            for number in range(rounds + WARM):
                if number == WARM:
                    used_s = _used_s(running.process)
                for query in FILTERS:
                    began = time.perf_counter()
                    answer = client.get(f"{running.url}/api/v1/jobs", params=query)
                    took = time.perf_counter() - began
                    answer.raise_for_status()
                    if number >= WARM:
                        found[str(query)].append(took)
            used_s = _used_s(running.process) - used_s
    return found, used_s / (rounds * len(FILTERS))


def _used_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="jobs.py list")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args(words)
    found, used_s = measure(given.jobs, given.rounds)
    for query, values in found.items():
        print(f"  {query:72} {summary(values)}")
    every = [value for values in found.values() for value in values]
    print(f"{given.jobs} jobs, all filters: {summary(every)}")
    measured = {"list-p95-ms": 1000 * quantile(every, 0.95), "list-cpu-ms": 1000 * used_s}
    print(claims.report("jobs_web", measured))
