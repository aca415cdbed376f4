"""The beginning of a study in the service: checked as its first job would be, then kept."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft.jobs.studies.store import add_study
from weft.jobs.studies.trial_specs import check_for_jobs, trial_spec
from weft.tune.samplers.base import Searcher
from weft.tune.samplers.simple import random_point
from weft.tune.study.config import StudyConfig
from weft.tune.study.core import StudyCore
from weft.tune.study.events import AnyEvent
from weft.tune.study.state import SearchState, TrialRecord
from weft.tune.study.warm_start import take_over

if TYPE_CHECKING:
    from weft.jobs.service.service import JobService

SHOWN = 5  # points of a dry run


@dataclass(frozen=True)
class BegunStudy:
    """A study that was begun; without an id it was only tried."""

    id: int | None
    state: SearchState


async def begin_study(
    service: JobService,
    config: StudyConfig,
    *,
    user_id: int,
    user_name: str,
    snapshot: str | None = None,
    earlier: SearchState | None = None,
    dry_run: bool = False,
) -> BegunStudy:
    """Begin a study whose trials are jobs; the driver starts the first of them."""
    check_for_jobs(config)
    searcher = await asyncio.to_thread(service.studies.algorithms.searcher, config)
    core, events = await asyncio.to_thread(_make, config, earlier, dry_run, searcher)
    any_point = random_point(core.state.space, np.random.default_rng(config.seed))
    spec = trial_spec(config, TrialRecord(0, any_point, (True,)), study_id=0)
    await service.submit(spec, user_id=user_id, user_name=user_name, snapshot=snapshot, dry_run=True)
    if dry_run:
        return BegunStudy(None, core.state)
    project = str(config.job.get("project", "default"))
    number = await service.database.write(
        lambda c: add_study(
            c, events, project=project, user_id=user_id, user_name=user_name, snapshot=snapshot
        )
    )
    service.wake()
    return BegunStudy(number, core.state)


def _make(
    config: StudyConfig, earlier: SearchState | None, dry_run: bool, searcher: Searcher | None
) -> tuple[StudyCore, list[AnyEvent]]:
    events: list[AnyEvent] = []
    core = StudyCore.begin(config, events.extend, at_s=time.time(), searcher=searcher)
    if earlier is not None:
        take_over(core, earlier, time.time())
    if dry_run:
        core.actions(min(SHOWN, config.parallel), time.time())
    return core, events
