"""Studies of a service as tests see them: small settings, a script that goes on from its checkpoint, and their ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from testing.jobs.desk import PATIENCE_S

from weft.jobs.code.snapshot import take_snapshot
from weft.jobs.service.service import JobService
from weft.jobs.store.snapshots import add_snapshot
from weft.jobs.studies.begin import begin_study
from weft.jobs.studies.store import events_of, need_study, trial_jobs
from weft.tune.study.config import convert_config
from weft.tune.study.state import SearchState

# Goes on from its checkpoint, and notes each step that it trains.
SCRIPT = """
import os, sys
from pathlib import Path
import weft
x, until = float(sys.argv[1]), int(sys.argv[2])
home = Path(os.environ["WEFT_CHECKPOINT"])
saved = home / "step"
step = int(saved.read_text()) if saved.exists() else 0
while step < until:
    step += 1
    with (home / "trained").open("a") as file:
        file.write(f"{step}\\n")
    saved.write_text(str(step))
    weft.report(step, loss=x * x + 1 / step)
"""


def settings(**more: Any) -> Any:
    return convert_config(
        {
            "name": "digits",
            "space": {"x": "float:-3:3"},
            "minimize": "loss",
            "run": "job.py {x} {epochs}",
            "search": "random",
            "schedule": {"name": "asha", "eta": 2},
            "resource": {"name": "epochs", "min": 1, "max": 2},
            "budget": {"trials": 3},
            "parallel": 2,
            "job": {"resources": {"cpus": 0.25}},
            **more,
        }
    )


async def begin(service: JobService, folder: Path, config: Any, script: str = SCRIPT) -> int:
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "job.py").write_text(script)
    taken = take_snapshot(code)
    for digest in taken.snapshot.blobs:
        service.blobs.add(digest, taken.read(digest))
    digest = await service.database.write(lambda c: add_snapshot(c, taken.snapshot))
    begun = await begin_study(service, config, user_id=1, user_name="ann", snapshot=digest)
    assert begun.id is not None
    return begun.id


async def over(service: JobService, number: int, *states: str) -> SearchState:
    """Wait until a study is in one of some states; return all of it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await service.database.read(lambda c: need_study(c, number))
            if found.state in (states or ("completed", "failed", "stopped")):
                return SearchState.of(await service.database.read(lambda c: events_of(c, number)))
            await asyncio.sleep(0.02)


async def trained(service: JobService, number: int) -> dict[int, list[str]]:
    jobs = await service.database.read(lambda c: trial_jobs(c, number))
    found = {}
    for trial, one in jobs.items():
        assert one.job_id is not None
        file = service.config.job_folder(one.job_id) / "checkpoints" / "trained"
        found[trial] = file.read_text().split()
    return found
