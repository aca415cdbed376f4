from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.cluster.waiting import wait_until
from testing.jobs.desk import Desk, opened
from testing.jobs.service_process import ServiceProcess

from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.service import JobService
from weft.jobs.store.database import Database

# Notes that it runs, then waits until it is let go.
SCRIPT = """
import os, time
from pathlib import Path
home = Path(os.environ["HOME_OF_TEST"])
with (home / "began").open("a") as file:
    file.write(os.environ["WEFT_JOB_ID"] + "\\n")
while not (home / "go").exists():
    time.sleep(0.02)
"""


class Office:
    """Services that come and go on one database, and the test's own view of it."""

    def __init__(self, folder: Path, address: str, database: Database) -> None:
        self.folder, self.address = folder, address
        self.desk = Desk(JobService(ServiceConfig(folder=folder / "data"), database), folder)
        self.services: list[ServiceProcess] = []

    def open(self) -> ServiceProcess:
        service = ServiceProcess(self.folder, self.address)
        self.services.append(service)
        return service

    def kill(self, service: ServiceProcess) -> None:
        service.kill()
        self.services.remove(service)

    async def submit(self, count: int, spec: str = "") -> list[int]:
        env = f"env: {{HOME_OF_TEST: {self.folder}}}\nresources: {{cpus: 0.25}}\n{spec}"
        return [await self.desk.submit(SCRIPT, env) for _ in range(count)]

    def began(self) -> list[int]:
        file = self.folder / "began"
        return sorted(map(int, file.read_text().split())) if file.exists() else []

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    address = f"sqlite:///{tmp_path}/weft.db"
    with opened(address) as database:
        office = Office(tmp_path, address, database)
        yield office
        office.go()
        for service in list(office.services):
            office.kill(service)


async def _host_known(office: Office) -> None:
    async with asyncio.timeout(30):
        while not office.desk.service.config.folder.exists() or not await office.desk.service.database.read(
            lambda c: c.exec_driver_sql("SELECT count(*) FROM host").scalar()
        ):
            await asyncio.sleep(0.02)


def test_a_killed_service_loses_no_job_and_starts_none_twice(office: Office) -> None:
    async def story() -> None:
        service = office.open()
        await _host_known(office)
        numbers = await office.submit(3)
        wait_until(lambda: office.began() == numbers, "all jobs to begin", 60)
        office.kill(service)
        waiting = await office.submit(1)
        office.open()
        wait_until(lambda: office.began() == numbers + waiting, "the job that came meanwhile", 60)
        office.go()
        for number in numbers + waiting:
            job = await office.desk.reach(number)
            assert (job.state, job.attempt) == ("completed", 1), job.message
        assert office.began() == numbers + waiting  # each once

    asyncio.run(story())


def test_ends_while_no_service_runs_are_found(office: Office) -> None:
    async def story() -> None:
        service = office.open()
        await _host_known(office)
        (number,) = await office.submit(1)
        wait_until(lambda: office.began() == [number], "the job to begin", 60)
        office.kill(service)
        office.go()
        await office.desk.appears(office.desk.path(number, "run", "outcome.json"))
        office.open()
        assert (await office.desk.reach(number)).state == "completed"

    asyncio.run(story())


@pytest.mark.parametrize("delay_s", [0.3, pytest.param(0.9, marks=pytest.mark.long)])
def test_a_service_killed_while_it_starts_jobs_starts_each_once(office: Office, delay_s: float) -> None:
    async def story() -> None:
        service = office.open()
        await _host_known(office)
        numbers = await office.submit(3)
        await asyncio.sleep(delay_s)  # into the middle of the starts
        office.kill(service)
        office.open()
        wait_until(lambda: office.began() == numbers, "all jobs to begin", 60)
        office.go()
        for number in numbers:
            job = await office.desk.reach(number)
            assert (job.state, job.attempt) == ("completed", 1), job.message
        assert office.began() == numbers

    asyncio.run(story())


def test_a_killed_keeper_is_a_lost_host_to_a_job_that_is_not_elastic(office: Office) -> None:
    async def story() -> None:
        office.open()
        await _host_known(office)
        once, twice = (await office.submit(1)) + (await office.submit(1, "retry: {max: 1, backoff: 0s}"))
        wait_until(lambda: office.began() == [once, twice], "both to begin", 60)
        for number in (once, twice):
            await office.desk.reach(number, {"running"})
            (attempt,) = await office.desk.attempts(number)
            assert attempt.keeper_pid is not None
            os.kill(attempt.keeper_pid, signal.SIGKILL)
        job = await office.desk.reach(once)
        assert (job.state, job.cause) == ("failed", "host-lost")
        wait_until(lambda: office.began() == [once, twice, twice], "the second attempt", 60)
        office.go()
        job = await office.desk.reach(twice)
        assert (job.state, job.attempt) == ("completed", 2)

    asyncio.run(story())
