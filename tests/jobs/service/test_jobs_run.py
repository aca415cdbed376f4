from __future__ import annotations

import json

import pytest
from testing.jobs.desk import Desk, Tell

from weft.jobs.lifecycle import StateError
from weft.jobs.spec.read import SpecError
from weft.jobs.store.jobs import JobNotFound


def test_a_job_runs_to_its_end_with_what_it_was_given(tell: Tell) -> None:
    script = """
import json, os
from pathlib import Path
names = ("WEFT_JOB_ID", "WEFT_JOB_NAME", "WEFT_ATTEMPT", "A", "WEFT_DATA_MY_SET", "WORLD_SIZE")
found = {name: os.environ.get(name) for name in names} | {"cpus": len(os.sched_getaffinity(0))}
Path(os.environ["WEFT_OUTPUTS"], "found.json").write_text(json.dumps(found))
Path("model.txt").write_text("weights")
assert Path(os.environ["WEFT_CHECKPOINT"]).is_dir()
"""

    async def story(desk: Desk) -> None:
        spec = "name: digits\nenv: {A: 1}\ndata: {my-set: /data}\noutputs: {model: model.txt}"
        number = await desk.submit(script, spec.replace("\\\n", "\n"))
        job = await desk.reach(number)
        assert (job.state, job.attempt, job.cause) == ("completed", 1, None), job.message
        assert await desk.states(number) == ["staging", "starting", "running", "storing", "completed"]
        found = json.loads(desk.path(number, "outputs", "found.json").read_text())
        assert found == {
            "WEFT_JOB_ID": str(number), "WEFT_JOB_NAME": "digits", "WEFT_ATTEMPT": "1", "A": "1",
            "WEFT_DATA_MY_SET": "/data", "WORLD_SIZE": "1", "cpus": 1,
        }  # fmt: skip
        assert desk.path(number, "outputs", "model").read_text() == "weights"
        (attempt,) = await desk.attempts(number)
        assert (attempt.code, attempt.message) == (0, "all workers ended well")
        assert desk.service.used() == {}

    tell(story)


def test_a_failed_job_names_its_exception_and_is_tried_again_by_its_rules(tell: Tell) -> None:
    script = """
import os
if os.environ["WEFT_ATTEMPT"] == "1":
    raise RuntimeError("bad batch")
"""

    async def story(desk: Desk) -> None:
        once = await desk.submit(script)
        twice = await desk.submit(script, "retry: {max: 1, backoff: 0s}")
        job = await desk.reach(once)
        assert (job.state, job.cause) == ("failed", "error")
        assert "rank 0: RuntimeError: bad batch" in (job.message or "")
        job = await desk.reach(twice)
        assert (job.state, job.attempt, job.retries) == ("completed", 2, 1)
        assert [attempt.cause for attempt in await desk.attempts(twice)] == ["error", None]
        await desk.act(once, "retry")
        job = await desk.reach(once, {"completed"})
        assert job.attempt == 2

    tell(story)


def test_a_program_that_is_not_there_fails_with_its_reason(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        missing = await desk.submit(spec="run: other.py")
        job = await desk.reach(missing)
        assert (job.state, job.cause) == ("failed", "error")
        assert "the script must be a file, got 'other.py'" in (job.message or "")

    tell(story)


def test_jobs_are_stopped_running_and_waiting(tell: Tell) -> None:
    script = """
import os, time
from pathlib import Path
Path(os.environ["WEFT_OUTPUTS"], "there").write_text("yes")
time.sleep(600)
"""

    async def story(desk: Desk) -> None:
        running = await desk.submit(script, "resources: {cpus: 2}")
        waiting = await desk.submit(script, "resources: {cpus: 2}")
        await desk.appears(desk.path(running, "outputs", "there"))
        reason = desk.service.reasons()[waiting]
        assert (reason.why, reason.place) == ("reserved", 1)
        assert desk.service.used()[desk.service.host].cpus == 2
        await desk.act(waiting, "stop")
        assert (await desk.job(waiting)).state == "stopped"
        await desk.act(running, "stop")
        job = await desk.reach(running)
        assert (job.state, job.message) == ("stopped", "stopped on request")
        with pytest.raises(StateError, match="it has ended"):
            await desk.act(running, "pause")
        with pytest.raises(JobNotFound):
            await desk.act(running, "retry", visible_to=2)

    tell(story)


def test_what_can_never_run_is_said_at_submit(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(
            SpecError, match=r"resources must fit onto the hosts, got a worker needs 4096 cpus"
        ):
            await desk.submit(spec="resources: {cpus: 4096}")
        with pytest.raises(SpecError, match="needs 300 workers at least"):
            await desk.submit(spec="workers: 300")

    tell(story)


def test_a_worker_that_holds_more_memory_than_it_asked_for_is_ended(tell: Tell) -> None:
    script = "import time; held = bytearray(300 << 20); time.sleep(60)"

    async def story(desk: Desk) -> None:
        number = await desk.submit(script, "resources: {memory: 100MiB}\nretry: {max: 1, on: [host-lost]}")
        job = await desk.reach(number)
        assert (job.state, job.cause, job.attempt) == ("failed", "out-of-memory", 1), job.message
        assert "100" in (job.message or "")

    tell(story)
