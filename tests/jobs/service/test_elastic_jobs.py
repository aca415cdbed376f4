from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from testing.jobs.desk import Desk, Tell

from weft.jobs.scheduler.model import Policy
from weft.jobs.store.events import events_after

WORKERS = Path(__file__).parents[3] / "testing" / "elastic" / "workers"
QUICK = Policy(idle_s=0.5, settle_s=0.5)
pytestmark = pytest.mark.long


async def submit(desk: Desk, workers: str = "1:2", more: str = "") -> int:
    """Submit a training run that takes its time until `hurry` is there."""
    script = (WORKERS / "steady.py").read_text()
    hurry = desk.folder / "hurry"
    spec = f"run: job.py --steps 100 --pause 0.05 --hurry {hurry}\nworkers: {workers}\n{more}"
    return await desk.submit(script, spec, files={"uncompiled.py": (WORKERS / "uncompiled.py").read_text()})


async def sizes(desk: Desk, number: int) -> list[int]:
    events = await desk.service.database.read(lambda c: events_after(c, 0, [f"job:{number}"]))
    return [event.data["workers"] for event in events if event.kind == "resized"]


async def steps(desk: Desk, number: int, attempt: int = 1) -> None:
    """Wait until a run has taken a step."""
    folder = desk.path(number, "run", "elastic", attempt=attempt)
    async with asyncio.timeout(120):
        while not any('"step"' in path.read_text() for path in folder.glob("*.ledger.jsonl")):
            await asyncio.sleep(0.05)


def test_an_urgent_job_has_an_elastic_one_shrink_and_it_grows_again(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        elastic = await submit(desk)
        await steps(desk, elastic)
        assert (await desk.job(elastic)).workers == 2
        urgent = await desk.submit("print('quick')", "queue: {priority: 95}")
        assert (await desk.reach(urgent)).state == "completed"
        await desk.until(elastic, lambda job: job.workers == 2)
        (desk.folder / "hurry").touch()
        job = await desk.reach(elastic)
        assert (job.state, job.attempt) == ("completed", 1), job.message
        assert await sizes(desk, elastic) == [1, 2]

    tell(story, policy=QUICK)


def test_an_elastic_job_is_scaled_and_paused_and_resumes_where_it_was(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        number = await submit(desk)
        await steps(desk, number)
        await desk.act(number, "scale", workers=1)
        await desk.until(number, lambda job: job.workers == 1)
        # What the worker that leaves held is free once it is gone.
        await desk.until(number, lambda job: desk.service.used()[desk.service.host].cpus == 1)
        await desk.act(number, "pause")
        job = await desk.reach(number, {"paused"})
        assert any(desk.service.config.job_folder(number).joinpath("checkpoints").iterdir())
        (desk.folder / "hurry").touch()
        await desk.act(number, "resume")
        job = await desk.reach(number)
        assert (job.state, job.attempt) == ("completed", 2), job.message

    tell(story, policy=QUICK)


def test_an_elastic_run_whose_keeper_is_killed_gets_another(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        number = await submit(desk, more="resources: {cpus: 0.5}")
        await steps(desk, number)
        (before,) = await desk.attempts(number)
        assert before.keeper_pid is not None
        os.kill(before.keeper_pid, signal.SIGKILL)
        async with asyncio.timeout(120):
            while (await desk.attempts(number))[0].keeper_pid == before.keeper_pid:
                await asyncio.sleep(0.02)
        (desk.folder / "hurry").touch()
        job = await desk.reach(number)
        assert (job.state, job.attempt) == ("completed", 1), job.message

    tell(story)
