"""Kill -9 of the service under load, again and again: no job is lost or run twice, and what it reports is whole.

    python benchmarks/jobs.py kills [--count 100] [--seed 0]

Small jobs are submitted all the time, by a client of the store; each logs 50 metric points over about a second and
notes its start and its end in a file. The service is killed at random moments, while it stages, starts, follows, stores
and ends them, and started again at once. At the end every job must have been started once, have ended well in its first
attempt, and have its points once each. "Adopted" is the time from the start of the next service until it follows a job
that ran before: its lease is taken, and the index built.

    python benchmarks/jobs.py failover [--rounds 5]

Two services on one PostgreSQL: the one that schedules is stopped dead (SIGSTOP), as one on a machine that is lost, and
a job is submitted at that moment. "Failover" is the time until the other one has taken the lease, which must run
out, and has started that job. A service that is killed on the same machine is noticed at once, which says less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import sqlalchemy as sa
from benchmarks import claims
from testing.jobs.desk import Desk, opened
from testing.jobs.service_process import ServiceProcess

from weft.jobs.lifecycle import ENDED
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.service import JobService
from weft.jobs.store.tables import job, lease, metric

POINTS = 50
FAILOVER_PAUSE_S = 4.0  # for the second service to be ready before the first is killed
MOST_WAITING = 6  # jobs that have not ended, at most: two cores have no room for more
SCRIPT = f"""
import os, time
from weft import log
with open(os.environ["HOME_OF_TEST"] + "/began", "a") as file:
    file.write(os.environ["WEFT_JOB_ID"] + "\\n")
for step in range({POINTS}):
    log(loss=1.0 / (step + 1), step=step)
    time.sleep(0.02)
with open(os.environ["HOME_OF_TEST"] + "/ended", "a") as file:
    file.write(os.environ["WEFT_JOB_ID"] + "\\n")
"""


class Campaign:
    """Services that are killed one after the other, on one database."""

    def __init__(self, folder: Path, address: str, desk: Desk, rng: random.Random) -> None:
        self._folder, self._address, self._desk, self._rng = folder, address, desk, rng
        self.submitted: list[int] = []
        self.adopted_s: list[float] = []

    async def run(self, kills: int) -> None:
        service = ServiceProcess(self._folder, self._address)
        await self._host_is_known()
        for number in range(kills):
            await self._submit()
            await asyncio.sleep(self._rng.uniform(0.0, 0.8))
            service.kill()
            before = await self._epoch()
            began = time.monotonic()
            service = ServiceProcess(self._folder, self._address)
            while await self._epoch() == before:
                await asyncio.sleep(0.01)
            self.adopted_s.append(time.monotonic() - began)
            if number % 10 == 9:
                print(f"{number + 1} kills, {len(self.submitted)} jobs", file=sys.stderr, flush=True)
        await self._all_end()
        service.stop()

    async def _submit(self) -> None:
        """Keep a few jobs waiting and running."""
        waiting = sa.select(sa.func.count()).where(job.c.state.not_in(ENDED))
        count = await self._desk.service.database.read(lambda c: c.execute(waiting).scalar_one())
        missing = MOST_WAITING - int(count)
        spec = f"env: {{HOME_OF_TEST: {self._folder}}}\nresources: {{cpus: 0.5}}"
        for _ in range(max(0, missing)):
            self.submitted.append(await self._desk.submit(SCRIPT, spec))

    async def _epoch(self) -> int:
        found = await self._desk.service.database.read(lambda c: c.scalar(sa.select(lease.c.epoch)))
        return int(found or 0)

    async def _host_is_known(self) -> None:
        while not await self._epoch():
            await asyncio.sleep(0.05)

    async def _all_end(self) -> None:
        left = sa.select(sa.func.count()).where(job.c.state.not_in(ENDED))
        while await self._desk.service.database.read(lambda c: c.scalar(left)):
            await asyncio.sleep(0.1)

    def figures(self, connection: sa.Connection) -> dict[str, float]:
        """Return what was lost and what was doubled."""
        began = Counter((self._folder / "began").read_text().split())
        ended = Counter((self._folder / "ended").read_text().split())
        rows = connection.execute(sa.select(job.c.id, job.c.state, job.c.attempt)).all()
        well = {row.id for row in rows if (row.state, row.attempt) == ("completed", 1)}
        for row in rows:
            if row.id not in well:
                print(f"job {row.id} is {row.state} after {row.attempt} attempts", file=sys.stderr)
        points = dict(
            connection.execute(
                sa.select(metric.c.job_id, metric.c.points).where(metric.c.name == "loss")
            ).all()
        )
        wrong = sum(abs(points.get(number, 0) - POINTS) for number in self.submitted)
        return {
            "kills-lost": float(
                len(set(self.submitted) - well) + sum(str(n) not in ended for n in self.submitted)
            ),
            "kills-doubled": float(sum(count - 1 for count in (began + Counter()).values() if count > 1)),
            "kills-points": float(wrong),
            "kills-adopted": max(self.adopted_s),
        }


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="weft-kills-"))
    address = f"sqlite:///{folder}/weft.db"
    with opened(address) as database:
        desk = Desk(JobService(ServiceConfig(folder=folder / "data"), database), folder)
        campaign = Campaign(folder, address, desk, random.Random(asked.seed))
        asyncio.run(campaign.run(asked.count))
        found = database.ask(campaign.figures)
    print(f"{len(campaign.submitted)} jobs, {asked.count} kills")
    print(claims.report("jobs_scheduling", {"kills": float(asked.count), **found}), end="")
    if found["kills-lost"] == found["kills-doubled"] == found["kills-points"] == 0:
        shutil.rmtree(folder)
    else:
        print(f"kept {folder}", file=sys.stderr)


async def fail_over(folder: Path, address: str, desk: Desk, rounds: int) -> list[tuple[float, float]]:
    """Return, for each loss of the service that schedules, the seconds to the new lease and to the start of a job."""
    found = []
    epoch = Campaign(folder, address, desk, random.Random(0))._epoch
    leading = ServiceProcess(folder, address)
    try:
        while not await epoch():
            await asyncio.sleep(0.05)
        for _ in range(rounds):
            waiting = ServiceProcess(folder, address)
            try:
                await asyncio.sleep(FAILOVER_PAUSE_S)  # it stands by
                before, began = await epoch(), time.monotonic()
                os.kill(leading.pid, signal.SIGSTOP)
                number = await desk.submit("print('hello')", "resources: {cpus: 0.5}")
                while await epoch() == before:
                    await asyncio.sleep(0.01)
                taken_s = time.monotonic() - began
                await desk.until(number, lambda job: job.attempt > 0 and job.state != "staging")
                found.append((taken_s, time.monotonic() - began))
                await desk.reach(number)
            finally:
                leading.kill()
                leading = waiting
    finally:
        leading.kill()
    return found


def failover(words: list[str]) -> None:
    """Print the figures of a failover beside the claims."""
    from benchmarks.jobs_harness.points import address_of

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(words)
    with (
        tempfile.TemporaryDirectory(prefix="weft-failover-") as folder,
        address_of("postgresql") as address,
        opened(address) as database,
    ):
        home = Path(folder)
        desk = Desk(JobService(ServiceConfig(folder=home / "data"), database), home)
        found = asyncio.run(fail_over(home, address, desk, asked.rounds))
    for taken_s, started_s in found:
        print(f"  lease taken after {taken_s:.2f} s, the job started after {started_s:.2f} s")
    print(claims.report("jobs_scheduling", {"failover-s": max(started_s for _, started_s in found)}), end="")
