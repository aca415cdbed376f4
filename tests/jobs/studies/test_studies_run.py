"""Studies of the service: trials as jobs, promoted from their checkpoints, and a service that is killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from testing.jobs.desk import PATIENCE_S, Desk, desk_on, opened
from testing.jobs.service_process import ServiceProcess
from testing.jobs.studies import begin, over, settings, trained

from weft.jobs.lifecycle import JobState
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.service import JobService
from weft.jobs.spec.model import OutputSource
from weft.jobs.store.jobs import StoredJob
from weft.jobs.studies.store import TrialJob, ask_study, events_of, need_study, trial_jobs
from weft.jobs.studies.trial_specs import check_for_jobs, next_step, trial_spec
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState, TrialRecord
from weft.tune.study.states import TrialState


def test_trials_are_jobs_that_are_promoted_from_their_checkpoints(tmp_path: Path) -> None:
    async def story() -> None:
        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            async with desk_on(database, tmp_path) as desk:
                service = desk.service
                number = await begin(service, tmp_path, settings())
                state = await over(service, number)
                assert (state.state, len(state.trials)) == ("completed", 3), state.message
                for trial, steps in (await trained(service, number)).items():
                    assert steps == [str(s + 1) for s in range(state.trials[trial].step)]  # none twice
                best = state.best()
                assert best is not None
                assert best.state == "completed"
                assert best.step == 2
                jobs = await database.read(lambda c: trial_jobs(c, number))
                attempts = [len(await desk.attempts(one.job_id)) for one in jobs.values() if one.job_id]
                assert sorted(attempts) == [1, 1, 2]
                stored = await database.read(lambda c: need_study(c, number))
                assert stored.view.best is not None
                assert stored.view.best.number == best.number
                await _is_stopped(desk, tmp_path)

    asyncio.run(story())


async def _is_stopped(desk: Desk, folder: Path) -> None:
    """Stop a study while its only job waits for a host that has room."""
    waiting = settings(job={"queue": {"hold": True}}, name="held", schedule="none", parallel=1)
    number = await begin(desk.service, folder, waiting)
    async with asyncio.timeout(PATIENCE_S):
        while not (jobs := await desk.service.database.read(lambda c: trial_jobs(c, number))):
            await asyncio.sleep(0.02)
    await _ask(desk, number, "stop")
    state = await over(desk.service, number, "stopped")
    assert [trial.state for trial in state] == ["stopped"]
    assert jobs[0].job_id is not None
    assert (await desk.reach(jobs[0].job_id)).state == "stopped"


def test_a_study_whose_trials_fail_ends_with_their_last_lines(tmp_path: Path) -> None:
    async def story() -> None:
        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            async with desk_on(database, tmp_path) as desk:
                config = settings(failures=1)
                number = await begin(desk.service, tmp_path, config, "print('no data'); raise SystemExit(3)")
                state = await over(desk.service, number)
                assert state.state == "failed"
                assert "exit code 3; its last lines: no data" in state.message

    asyncio.run(story())


KILLED_ONCE = """
import os, signal, sys
from pathlib import Path
import weft
home = Path(os.environ["WEFT_CHECKPOINT"])
if not (home / "killed").exists():
    (home / "killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
weft.report(1, loss=float(sys.argv[1]))
"""


WAITS = """
import os, sys, time
from pathlib import Path
import weft
mark = Path(os.environ["WEFT_CHECKPOINT"], "begun")
weft.report(1, loss=1.0)
if not mark.exists():
    mark.touch()
    while True:
        time.sleep(0.02)
weft.report(2, loss=0.5)
"""


def test_a_trial_that_was_stopped_with_its_study_goes_on_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            async with desk_on(database, tmp_path) as desk:
                config = settings(run="job.py {x}", schedule="none", resource=None, budget={"trials": 1})
                number = await begin(desk.service, tmp_path, config, WAITS)
                async with asyncio.timeout(PATIENCE_S):
                    while not any(trial.steps for trial in await _state(desk, number)):
                        await asyncio.sleep(0.02)
                await _ask(desk, number, "stop")
                state = await over(desk.service, number)
                assert [trial.state for trial in state] == ["stopped"]
                jobs = await database.read(lambda c: trial_jobs(c, number))
                assert jobs[0].job_id is not None
                assert (await desk.reach(jobs[0].job_id)).state == "stopped"
                await _ask(desk, number, "resume")
                state = await over(desk.service, number, "completed", "failed")
                assert [(trial.state, trial.value) for trial in state] == [("completed", 0.5)]
                assert await database.read(lambda c: trial_jobs(c, number)) == {
                    0: TrialJob(0, jobs[0].job_id, 2, jobs[0].resource)
                }

    asyncio.run(story())


async def _state(desk: Desk, number: int) -> SearchState:
    return SearchState.of(await desk.service.database.read(lambda c: events_of(c, number)))


async def _ask(desk: Desk, number: int, verb: str) -> None:
    await desk.service.database.write(lambda c: ask_study(c, number, {"do": verb}, user_name="ann"))
    desk.service.wake()


def test_kill_9_of_a_trial_starts_it_again(tmp_path: Path) -> None:
    async def story() -> None:
        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            async with desk_on(database, tmp_path) as desk:
                config = settings(run="job.py {x}", schedule="none", resource=None, budget={"trials": 1})
                number = await begin(desk.service, tmp_path, config, KILLED_ONCE)
                state = await over(desk.service, number)
                assert state.state == "completed", state.message
                assert [(trial.state, trial.lost) for trial in state] == [("completed", 1)]

    asyncio.run(story())


def test_kill_9_of_the_service_loses_no_trial_and_counts_none_twice(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/weft.db"

    async def story() -> None:
        with opened(address) as database:
            view = JobService(ServiceConfig(folder=tmp_path / "data"), database)
            service = ServiceProcess(tmp_path, address)
            try:
                await _host_known(view)
                number = await begin(view, tmp_path, settings(seed=3))
                async with asyncio.timeout(PATIENCE_S):
                    while not await view.database.read(lambda c: trial_jobs(c, number)):
                        await asyncio.sleep(0.02)
                service.kill()
                service = ServiceProcess(tmp_path, address)
                state = await over(view, number)
                assert (state.state, len(state.trials)) == ("completed", 3), state.message
                events = await view.database.read(lambda c: events_of(c, number))
                ends = Counter(e.trial for e in events if type(e).__name__ == "TrialEnded")  # type: ignore[union-attr]
                assert set(ends.values()) == {1}
                for trial, steps in (await trained(view, number)).items():
                    assert steps == [str(s + 1) for s in range(state.trials[trial].step)]
            finally:
                service.kill()

    asyncio.run(story())


async def _host_known(service: JobService) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await service.database.read(
            lambda c: c.exec_driver_sql("SELECT count(*) FROM host").scalar()
        ):
            await asyncio.sleep(0.02)


def _job(state: JobState, wanted: str | None = None) -> StoredJob:
    fields: dict[str, Any] = dict.fromkeys(StoredJob.__dataclass_fields__)
    return StoredJob(**{**fields, "id": 7, "state": state, "wanted": wanted})


def _trial(
    state: str, *, starts: int = 1, step: int = 0, until: int = 1, parent: int | None = None
) -> TrialRecord:
    made = TrialRecord(
        0,
        {"x": 1.0},
        (True,),
        state=TrialState(state),
        starts=starts,
        until=until,
        parent=parent,
        final=False,
    )
    made.steps, made.curve = list(range(1, step + 1)), [0.0] * step
    return made


TOLD = TrialJob(0, 7, 1, 1)
OPEN = {"run": "job.py {x}"}  # a script that is not told its limit


@pytest.mark.parametrize(
    ("trial", "told", "job", "more", "step"),
    [
        (_trial("running"), None, None, {}, "submit"),
        (_trial("running"), TOLD, _job("running"), {}, "none"),
        (_trial("running"), TOLD, _job("completed"), {}, "told"),
        (_trial("running"), TOLD, _job("failed"), {}, "told"),
        (_trial("running", starts=2, until=2), TOLD, _job("completed"), {}, "retry"),
        (
            _trial("running", until=2, step=1),
            TOLD,
            _job("running"),
            {},
            "wait",
        ),  # extended: it ends, then goes on
        (_trial("running", until=2, step=1), TOLD, _job("completed"), {}, "retry"),
        (_trial("running", starts=2), TOLD, _job("paused"), OPEN, "resume"),
        (_trial("running", starts=2), TOLD, _job("held"), OPEN, "release"),
        (_trial("running", starts=2), TOLD, _job("running", "pause"), OPEN, "wait"),
        (_trial("running", starts=2, parent=3), TOLD, _job("running"), OPEN, "pause"),  # before other weights
        (_trial("paused"), TOLD, _job("running"), OPEN, "pause"),
        (_trial("paused"), TOLD, _job("running", "pause"), OPEN, "none"),
        (_trial("paused", step=1), TOLD, _job("running"), {}, "none"),  # it ends by itself
        (_trial("paused"), TOLD, _job("queued"), OPEN, "hold"),
        (_trial("stopped"), TOLD, _job("running"), {}, "stop"),
        (_trial("stopped"), TOLD, _job("running", "stop"), {}, "none"),
        (_trial("stopped"), TOLD, _job("completed"), {}, "none"),
    ],
)
def test_steps_that_bring_a_job_to_what_its_study_wants(
    trial: TrialRecord, told: TrialJob | None, job: StoredJob | None, more: dict[str, Any], step: str
) -> None:
    assert next_step(settings(**more), trial, told, job) == step


def test_jobs_of_trials() -> None:
    spec = trial_spec(settings(), TrialRecord(4, {"x": 0.5}, (True,), until=2), study_id=9)
    assert spec.run == ("job.py", "0.5", "2")
    assert spec.tags == {"study": "9", "trial": "4", "x": "0.5"}
    assert spec.env["WEFT_PARAMS"] == '{"x": 0.5}'
    assert spec.queue.priority < 50
    assert spec.metrics == (OutputSource(),)  # what it prints are reports
    for more, must in (
        ({"run": "job.py {params}"}, "must be a file on this machine"),
        ({"budget": {}}, "must have a budget"),
        ({"job": {"run": "a.py"}}, "must not have run"),
        ({"run": "job.py {epochs}"}, "must pass every parameter on"),
    ):
        with pytest.raises(StudyError, match=must):
            check_for_jobs(settings(**more))
