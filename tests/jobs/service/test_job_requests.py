from __future__ import annotations

import asyncio
import json

import pytest
import sqlalchemy as sa
from testing.jobs.desk import PATIENCE_S, Desk, Tell

from weft.errors import UsageError
from weft.jobs.advice.model import Finding
from weft.jobs.lifecycle import StateError
from weft.jobs.scheduler.model import Resources
from weft.jobs.service.schedules import submit_due
from weft.jobs.spec.read import SpecError
from weft.jobs.store import tables
from weft.jobs.store.events import events_after
from weft.jobs.store.jobs import spec_of

WAITS = """
import os, signal, sys, time
from pathlib import Path
outputs, saved = Path(os.environ["WEFT_OUTPUTS"]), Path(os.environ["WEFT_CHECKPOINT"], "saved")

def save(number, frame):
    saved.write_text("step 7")
    sys.exit(1)

signal.signal(signal.SIGTERM, save)
(outputs / "there").write_text(saved.read_text() if saved.exists() else "step 0")
while not (outputs / "go").exists():
    time.sleep(0.02)
"""


def test_a_paused_job_saves_and_resumes_from_there(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        number = await desk.submit(WAITS)
        assert await desk.appears(desk.path(number, "outputs", "there")) == "step 0"
        await desk.reach(number, {"running"})
        await desk.act(number, "pause")
        job = await desk.reach(number, {"paused"})
        assert (job.wanted, job.workers) == (None, 0)
        assert desk.service.used() == {}
        await desk.act(number, "resume")
        assert await desk.appears(desk.path(number, "outputs", "there", attempt=2)) == "step 7"
        desk.path(number, "outputs", "go", attempt=2).touch()
        job = await desk.reach(number)
        assert (job.state, job.attempt, job.retries) == ("completed", 2, 0)

    tell(story)


def test_an_urgent_job_pauses_another_which_goes_on_afterwards(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        usual = await desk.submit(WAITS, "resources: {cpus: 2}")
        await desk.appears(desk.path(usual, "outputs", "there"))
        await desk.reach(usual, {"running"})
        urgent = await desk.submit("print('quick')", "resources: {cpus: 2}\nqueue: {priority: 95}")
        assert (await desk.reach(urgent)).state == "completed"
        assert await desk.appears(desk.path(usual, "outputs", "there", attempt=2)) == "step 7"
        desk.path(usual, "outputs", "go", attempt=2).touch()
        job = await desk.reach(usual)
        assert (job.state, job.attempt) == ("completed", 2)
        first, _ = await desk.attempts(usual)
        assert first.message == "gave way to another job, at its last checkpoint"

    tell(story)


def test_a_job_that_runs_for_too_long_is_ended(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        number = await desk.submit(WAITS, "queue: {max_time: 1s}")
        job = await desk.reach(number)
        assert (job.state, job.cause) == ("failed", "time-out")

    tell(story)


def test_jobs_wait_for_others_and_say_so(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        first = await desk.submit("raise SystemExit(3)")
        second = await desk.submit(spec=f"queue: {{after: [{first}]}}")
        await desk.reach(first, {"failed"})
        await desk.until(second, lambda _: "did not complete" in _reason(desk, second))
        assert (await desk.job(second)).state == "queued"
        held = await desk.submit(spec="queue: {hold: true}")
        assert (await desk.job(held)).state == "held"
        third = await desk.submit(spec=f"queue: {{after: [{held}]}}")
        await desk.act(held, "release")
        assert (await desk.reach(third)).state == "completed"
        assert (await desk.job(held)).ended_ms <= (await desk.job(third)).started_ms  # type: ignore[operator]
        await desk.act(second, "stop")

    tell(story)


def _reason(desk: Desk, number: int) -> str:
    reason = desk.service.reason(number)
    return reason.text if reason is not None else ""


def test_an_array_is_one_job_for_each_combination(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        spec = "run: job.py {lr} {depth}\nname: sweep\narray: {lr: [1, 2], depth: [7, 8]}\nresources: {cpus: 0.5}"
        script = (
            "import os, sys; open(os.environ['WEFT_OUTPUTS'] + '/args', 'w').write(' '.join(sys.argv[1:]))"
        )
        numbers = await desk.submit_all(script, spec)
        assert len(numbers) == 4
        for number in numbers:
            assert (await desk.reach(number)).state == "completed"
        found = {desk.path(number, "outputs", "args").read_text() for number in numbers}
        assert found == {"1 7", "1 8", "2 7", "2 8"}

    tell(story)


def test_a_clone_has_the_same_code_and_merged_changes(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        number = await desk.submit("print(1)", "env: {A: a, B: b}\nqueue: {priority: 30, hold: true}")
        changes = {"env": {"A": "other", "C": 1}, "queue": {"hold": None}}
        (clone,) = await desk.service.clone(number, changes, user_id=2, user_name="bob")
        job, original = await desk.job(clone), await desk.job(number)
        assert (job.snapshot, job.parent_id, job.user_name) == (original.snapshot, number, "bob")
        spec = await desk.service.database.read(lambda c: spec_of(c, clone))
        assert (spec.env, spec.queue.priority) == ({"A": "other", "B": "b", "C": 1}, 30)
        assert (await desk.reach(clone)).state == "completed"
        with pytest.raises(SpecError, match="ruin"):
            await desk.service.clone(number, {"ruin": 1}, user_id=2, user_name="bob")

    tell(story)


def test_a_schedule_submits_a_job_at_each_of_its_times(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(SpecError, match="schedule must be a cron line"):
            await desk.submit(spec="schedule: every day")
        schedule = await desk.submit(spec="schedule: 0 3 * * *")
        job = await desk.job(schedule)
        assert (job.kind, job.state) == ("schedule", "queued")
        await desk.until(schedule, lambda _: schedule in desk.service.reasons())
        assert desk.service.reasons()[schedule].earliest_s == job.not_before_ms / 1000
        database = desk.service.database
        assert await database.write(lambda c: submit_due(c, schedule)) == ()  # its time has not come
        due = sa.update(tables.job).where(tables.job.c.id == schedule).values(not_before_ms=1)
        await database.write(lambda c: c.execute(due))
        made = await desk.until(schedule, lambda job: job.not_before_ms > 1)
        assert made.not_before_ms == job.not_before_ms
        (run,) = await database.read(
            lambda c: c.scalars(sa.select(tables.job.c.id).where(tables.job.c.parent_id == schedule)).all()
        )
        assert (await desk.reach(run)).state == "completed"
        await desk.act(schedule, "stop")

    tell(story)


def test_a_quota_holds_jobs_back_and_priority_brings_them_forward(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        await desk.service.set_quota(1, most=Resources(1.0, float("inf"), float("inf")))
        first = await desk.submit(WAITS)
        await desk.appears(desk.path(first, "outputs", "there"))
        later, sooner = await desk.submit(), await desk.submit()
        await desk.until(later, lambda _: "quota" in _reason(desk, later))
        await desk.act(sooner, "priority", value=90)
        with pytest.raises(UsageError, match="between 0 and 100"):
            await desk.act(sooner, "priority", value=101)
        await desk.until(sooner, lambda job: job.priority == 90)
        desk.path(first, "outputs", "go").touch()
        started = [(await desk.reach(number)).started_ms for number in (sooner, later)]
        assert started[0] < started[1]  # type: ignore[operator]

    tell(story)


def test_jobs_on_one_host_have_processors_of_their_own(tell: Tell) -> None:
    script = WAITS.replace(
        '(outputs / "there")',
        '(outputs / "cpus").write_text(str(os.sched_getaffinity(0)))\n(outputs / "there")',
    )

    async def story(desk: Desk) -> None:
        numbers = [await desk.submit(script) for _ in range(2)]
        texts = [await desk.appears(desk.path(number, "outputs", "cpus")) for number in numbers]
        one, other = (set(map(int, text.strip("{}").split(","))) for text in texts)
        assert len(one) == len(other) == 1
        assert not one & other
        shares = [desk.service.dispatcher.shares_of(number)[0] for number in numbers]
        assert [set(share.cpus) for share in shares] == [one, other]
        for number in numbers:
            desk.path(number, "outputs", "go").touch()
            await desk.reach(number)

    tell(story)


def test_jobs_that_have_ended_are_removed_with_their_files(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        number = await desk.submit()
        with pytest.raises(StateError, match="must have ended"):
            await desk.service.remove(number, user_name="ann")
        await desk.reach(number)
        assert desk.path(number).exists()
        await desk.service.remove(number, user_name="ann")
        assert not desk.path(number).exists()

    tell(story)


def test_secrets_reach_a_job_by_its_environment_alone(tell: Tell) -> None:
    script = "import os; open(os.environ['WEFT_OUTPUTS'] + '/seen', 'w').write(os.environ['HF_TOKEN'])"

    async def story(desk: Desk) -> None:
        from weft.jobs.accounts.sealing import Sealer

        sealed = Sealer(desk.service.folder / "secret.key").seal("very secret")
        row = {"user_id": 1, "name": "HF_TOKEN", "sealed": sealed, "created_ms": 0}
        await desk.service.database.write(lambda c: c.execute(sa.insert(tables.secret), row))
        number = await desk.submit(script, "secrets: [HF_TOKEN]")
        with pytest.raises(SpecError, match="none named OTHER"):
            await desk.submit(script, "secrets: [OTHER]")
        assert (await desk.reach(number)).state == "completed"
        assert desk.path(number, "outputs", "seen").read_text() == "very secret"
        folder = desk.path(number)
        texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "seen"]
        assert not any(b"very secret" in text for text in texts)
        assert json.loads((folder / "run" / "plan.json").read_text())["env"]["HF_TOKEN"] == "***"

    tell(story)


def test_a_script_acts_on_advice_and_a_job_starts_again_on_it(tell: Tell) -> None:
    script = """
import os, time, weft
while os.environ["WEFT_ATTEMPT"] == "1":
    for advice in weft.report(progress=0.5):
        advice.done(f"{advice.rule}: norms are clipped")
    time.sleep(0.05)
"""

    async def story(desk: Desk) -> None:
        number = await desk.submit(script)
        await desk.reach(number, {"running"})
        found = Finding("exploding-gradients", "warning", "norms explode", {})
        await desk.service.deliver(number, 1, found, "clip")

        async def acted() -> list[str]:
            events = await desk.service.database.read(lambda c: events_after(c, 0, [f"job:{number}"]))
            return [event.data["text"] for event in events if event.kind == "acted"]

        async with asyncio.timeout(PATIENCE_S):
            while not await acted():
                await asyncio.sleep(0.05)
        assert await acted() == ["clip: exploding-gradients: norms are clipped"]
        await desk.act(number, "restart", why="no step for long")
        job = await desk.reach(number)
        assert (job.state, job.attempt, job.retries) == ("completed", 2, 0), job.message
        with pytest.raises(StateError, match="must be running to start again"):
            await desk.act(number, "restart")

    tell(story)
