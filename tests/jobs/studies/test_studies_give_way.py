"""Studies beside other people's jobs: trials give way by pausing at their checkpoints or by shrinking, and go on."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from testing.jobs.desk import PATIENCE_S, Desk, desk_on, opened
from testing.jobs.studies import begin, over, settings, trained

from weft.jobs.scheduler.model import Policy
from weft.jobs.studies.store import events_of, trial_jobs

CPUS = len(os.sched_getaffinity(0))
STEPS = 6
WORKERS = Path(__file__).parents[3] / "testing" / "elastic" / "workers"
QUICK = Policy(idle_s=0.5, settle_s=0.5)

# Takes its first step, then waits for a file; saves each step, and notes it.
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
import weft
x, hurry, polite, until = float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "polite", int(sys.argv[4])
if polite:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # what it has is saved already
home = Path(os.environ["WEFT_CHECKPOINT"])
saved = home / "step"
step = int(saved.read_text()) if saved.exists() else 0
while step < until:
    while step and not hurry.exists():
        time.sleep(0.01)
    step += 1
    with (home / "trained").open("a") as file:
        file.write(f"{step}\\n")
    saved.write_text(str(step))
    weft.report(step, loss=x * x + 1 / step)
"""


def two_at_once(folder: Path, *, polite: bool, **more: Any) -> Any:
    kind = "polite" if polite else "plain"
    return settings(
        run=f"job.py {{x}} {folder / 'hurry'} {kind} {{epochs}}",
        schedule="none",
        resource={"name": "epochs", "min": 1, "max": STEPS},
        budget={"trials": 2},
        job={"resources": {"cpus": CPUS / 2}},
        **more,
    )


async def jobs_at_work(desk: Desk, number: int, count: int) -> list[int]:
    """Wait until trials have trained a step each; return their jobs."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await desk.service.database.read(lambda c: trial_jobs(c, number))
            ids = [one.job_id for one in found.values() if one.job_id is not None]
            folders = [desk.service.config.job_folder(job_id) / "checkpoints" / "step" for job_id in ids]
            if len(ids) == count and all(folder.exists() for folder in folders):
                return ids
            await asyncio.sleep(0.02)


async def bobs_job(desk: Desk) -> int:
    """Submit a job of somebody else that needs half of the machine."""
    spec = f"resources: {{cpus: {CPUS / 2}}}"
    return await desk.submit("print('quick')", spec, user_id=2, user_name="bob")


def reporting(script: str) -> str:
    """Return the training run as one that reports each step."""
    told = "if run.applied:\n            weft.report(run.committed, loss=float(loss.detach()))\n        if options.tell"
    found = script.replace("import torch\n", "import torch\nimport weft\n", 1).replace(
        "if options.tell", told, 1
    )
    assert found.count("weft") > script.count("weft")
    return found


@pytest.mark.parametrize("polite", [False, True], ids=["dies of SIGTERM", "ends well at SIGTERM"])
def test_a_trial_pauses_for_the_job_of_somebody_else_and_goes_on_from_its_checkpoint(
    tmp_path: Path, polite: bool
) -> None:
    async def story() -> None:
        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            async with desk_on(database, tmp_path) as desk:
                number = await begin(desk.service, tmp_path, two_at_once(tmp_path, polite=polite), SCRIPT)
                ids = await jobs_at_work(desk, number, 2)
                job = await bobs_job(desk)
                assert (await desk.reach(job)).state == "completed"  # while both trials wait for the file
                (tmp_path / "hurry").touch()
                state = await over(desk.service, number)
                assert state.state == "completed", state.message
                assert [(t.state, t.step, t.lost) for t in state] == [("completed", STEPS, 0)] * 2
                for steps in (await trained(desk.service, number)).values():
                    assert steps == [str(s + 1) for s in range(STEPS)]  # none twice, none left out
                assert sorted([len(await desk.attempts(one)) for one in ids]) == [
                    1,
                    2,
                ]  # the share fell to one
                events = await database.read(lambda c: events_of(c, number))
                assert Counter(type(e).__name__ for e in events)["TrialEnded"] == 2

    asyncio.run(story())


@pytest.mark.long
def test_an_elastic_trial_shrinks_for_the_job_of_somebody_else_and_grows_again(tmp_path: Path) -> None:
    async def story() -> None:
        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            async with desk_on(database, tmp_path, policy=QUICK) as desk:
                config = settings(
                    run=f"job.py --steps 100 --pause 0.05 --hurry {tmp_path / 'hurry'} --width {{x}}",
                    space={"x": "int:4:16"},
                    schedule="none",
                    resource=None,
                    budget={"trials": 1},
                    parallel=1,
                    job={"workers": "1:2", "resources": {"cpus": CPUS / 2}},
                )
                script = reporting((WORKERS / "steady.py").read_text())
                (tmp_path / "code").mkdir()
                (tmp_path / "code" / "uncompiled.py").write_text((WORKERS / "uncompiled.py").read_text())
                number = await begin(desk.service, tmp_path, config, script)
                async with asyncio.timeout(PATIENCE_S):
                    while not (found := await database.read(lambda c: trial_jobs(c, number))):
                        await asyncio.sleep(0.02)
                trial_job = found[0].job_id
                assert trial_job is not None
                await desk.until(trial_job, lambda job: job.state == "running" and job.workers == 2)
                folder = desk.path(trial_job, "run", "elastic")
                async with asyncio.timeout(PATIENCE_S):
                    while not any('"step"' in path.read_text() for path in folder.glob("*.ledger.jsonl")):
                        await asyncio.sleep(0.02)
                job = await bobs_job(desk)
                assert (await desk.reach(job)).state == "completed"
                await desk.until(trial_job, lambda job: job.workers == 2)
                (tmp_path / "hurry").touch()
                state = await over(desk.service, number)
                assert state.state == "completed", state.message
                assert (state.trials[0].state, state.trials[0].lost) == ("completed", 0)
                assert len(await desk.attempts(trial_job)) == 1  # it was never paused
                assert state.trials[0].step == 99  # counted from 0

    asyncio.run(story())
