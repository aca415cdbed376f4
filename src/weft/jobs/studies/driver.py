"""The driver of studies: a chore of the dispatcher, so that one service at a time does it.

Each turn of a study hears of its jobs, decides, and brings jobs to what the study wants of their trials. Events and
jobs change in one transaction: a service that is killed has done all of a turn or nothing, and the next one goes on
from the store. What it keeps in memory is only what the store's events make.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError, WeftError
from weft.jobs.lifecycle import ENDED, StateError
from weft.jobs.metrics.columns import Columns
from weft.jobs.reports.logs import LogReader
from weft.jobs.service import actions
from weft.jobs.service.attempts.steps import Attempts
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.lease import LeaseLost
from weft.jobs.spec.read import resolve
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob, load_jobs, need_job, spec_of, submit_job
from weft.jobs.store.metrics import summaries
from weft.jobs.store.tables import job as job_table
from weft.jobs.studies.algorithms import InstalledAlgorithms
from weft.jobs.studies.points import PointReader
from weft.jobs.studies.store import (
    StoredStudy,
    StudyNotFound,
    TrialJob,
    append_events,
    events_of,
    forget_requests,
    keep_view,
    need_study,
    put_trial_job,
    requests_of,
    studies_to_drive,
    trial_jobs,
)
from weft.jobs.studies.trial_specs import next_step, trial_spec, with_words
from weft.tune.runners.command import ends_at_limit, limit_of
from weft.tune.runners.reports import joined_lines
from weft.tune.runners.weights import take_weights
from weft.tune.study.core import StudyCore
from weft.tune.study.events import AnyEvent
from weft.tune.study.requests import carry_out
from weft.tune.study.state import SearchState, TrialRecord

_log = logging.getLogger(__name__)
LAST_LINES = 20  # of a failed job's log, of which those that are not empty are told
_RANK = re.compile(r"\brank (\d+)\b")
_KILLED = re.compile(
    r"rank \d+: killed by "
)  # begins the message of a job whose process was ended from outside
LISTEN_S = 0.1  # at least, from one turn of studies because their trials have reported to the next
GATHER_S = 0.02  # for reports of other trials that come at the same time
LISTEN_SHARE = 0.5  # of the time that such turns may take


@dataclass
class DrivenStudy:
    """One study in memory."""

    id: int
    stored: StoredStudy
    core: StudyCore
    events: int  # in the store
    jobs: dict[int, TrialJob]
    points: PointReader  # of the first metric
    new: list[AnyEvent] = field(default_factory=list)  # not in the store yet
    ended: dict[int, StoredJob] = field(default_factory=dict)  # jobs that ended, of trials that are over
    steps: list[tuple[str, int]] = field(default_factory=list)  # for jobs, by trial

    def job_ids(self) -> set[int]:
        """Return the jobs of all trials."""
        return {trial_job.job_id for trial_job in self.jobs.values() if trial_job.job_id is not None}

    def forget_revived(self) -> None:
        """Read jobs again whose trials go on though they were over."""
        trials = self.core.state.trials
        over = {told.job_id for told in self.jobs.values() if trials[told.trial].over}
        self.ended = {number: job for number, job in self.ended.items() if number in over}

    def keep_ended(self, found: dict[int, StoredJob]) -> None:
        """Note the jobs about which nothing can change any more, so that they are not read again."""
        trials = self.core.state.trials
        for trial_job in self.jobs.values():
            job = found.get(trial_job.job_id) if trial_job.job_id is not None else None
            if job is not None and job.state in ENDED and trials[trial_job.trial].over:
                self.ended[job.id] = job


class StudyDriver:
    """Drives all studies of a service."""

    def __init__(
        self, config: ServiceConfig, database: Database, attempts: Attempts, wake: Callable[[], None]
    ) -> None:
        self._config, self._database, self._attempts, self._wake = config, database, attempts, wake
        self.algorithms = InstalledAlgorithms(config.folder / "algorithms")
        self._driven: dict[int, DrivenStudy] = {}
        self._lease: object = None
        self._turning = asyncio.Lock()
        self._heard: set[int] = set()  # jobs that have reported since the last turn
        self._reports = asyncio.Event()

    def heard(self, job_id: int) -> None:
        """Note that a job has reported, so that its study hears of it before the next look."""
        self._heard.add(job_id)
        self._reports.set()

    async def listen(self) -> None:
        """Take a turn of each study whose trials report, a few times a second, until cancelled."""
        ended = -math.inf
        took_s = 0.0
        while True:
            await self._reports.wait()
            rest_s = max(LISTEN_S - took_s, took_s * (1 - LISTEN_SHARE) / LISTEN_SHARE)
            await asyncio.sleep(max(GATHER_S, ended + rest_s - time.monotonic()))
            self._reports.clear()
            heard, self._heard = self._heard, set()
            began = time.monotonic()
            async with self._turning:
                await self._hear(heard)
            ended = time.monotonic()
            took_s = ended - began

    async def _hear(self, heard: set[int]) -> None:
        """Take a turn of each study of which jobs have reported."""
        if self._attempts.lease != self._lease:
            return  # what is in memory may be old: the next look reads it again
        reporting = [n for n, one in self._driven.items() if heard & one.job_ids()]
        try:
            for number in reporting:
                await self._try_turn(number)
        except LeaseLost:
            self._driven = {}
        if any(one.steps for number in reporting if (one := self._driven.get(number))):
            self._wake()

    async def look(self, _: object, now_s: float) -> None:
        """Take one turn of each study."""
        async with self._turning:
            await self._look()

    async def _look(self) -> None:
        if self._attempts.lease != self._lease:
            self._driven, self._lease = {}, self._attempts.lease  # another may have driven them meanwhile
        wanted = await self._database.read(studies_to_drive)
        for number in {*wanted, *self._unfinished()}:
            await self._try_turn(number)
        for number in set(self._driven) - set(wanted):
            if number not in self._unfinished():
                del self._driven[number]

    def _unfinished(self) -> set[int]:
        """Return studies that are over or paused, but whose jobs are not yet."""
        return {number for number, one in self._driven.items() if one.steps}

    # -- one turn --------------------------------------------------------------------------------------

    async def _try_turn(self, number: int) -> None:
        try:
            await self._turn(number)
        except (LeaseLost, asyncio.CancelledError):
            self._driven.pop(number, None)
            raise
        except StudyNotFound:
            self._driven.pop(number, None)
        except Exception:
            self._driven.pop(number, None)  # it is read again
            _log.exception("study %s: a turn failed", number)

    async def _turn(self, number: int) -> None:
        one = self._driven.get(number) or await self._load(number)
        self._driven[number] = one
        found, requests = await self._database.read(lambda c: self._look_up(c, one))
        self._hear_ends(one, found)
        self._hear_requests(one, requests)
        await asyncio.to_thread(self._decide, one, found)
        one.steps = self._steps(one, found)
        await self._prepare(one)
        if one.new or one.steps or requests:
            await self._attempts.write(lambda c: self._commit(c, one, [key for key, _ in requests]))
            one.events += len(one.new)
            one.new.clear()
            if one.steps:
                one.jobs = await self._database.read(lambda c: trial_jobs(c, number))

    async def _load(self, number: int) -> DrivenStudy:
        def work(connection: sa.Connection) -> tuple[StoredStudy, list[AnyEvent], dict[int, TrialJob]]:
            return (
                need_study(connection, number),
                events_of(connection, number),
                trial_jobs(connection, number),
            )

        stored, events, jobs = await self._database.read(work)
        made: list[AnyEvent] = []
        state = SearchState.of(events)
        core = StudyCore(state, made.extend, searcher=self.algorithms.searcher_or_failure(state.config))
        return DrivenStudy(number, stored, core, len(events), jobs, PointReader(state.goals[0]), made)

    # -- hearing ---------------------------------------------------------------------------------------

    def _look_up(
        self, connection: sa.Connection, one: DrivenStudy
    ) -> tuple[dict[int, StoredJob], list[tuple[int, dict[str, Any]]]]:
        """Return the jobs of a study and what it was asked for, and take in what its trials have reported."""
        one.forget_revived()
        ids = sorted(one.job_ids() - set(one.ended))
        found = {job.id: job for job in load_jobs(connection, ids)}
        one.keep_ended(found)
        found = {**one.ended, **found}
        requests = requests_of(connection, one.id)
        self._hear_points(connection, one, found)
        return found, requests

    def _hear_points(self, connection: sa.Connection, one: DrivenStudy, jobs: dict[int, StoredJob]) -> None:
        """Take in what running trials have reported since."""
        trials: dict[int, TrialRecord] = {}
        for trial in one.core.state.in_state("running"):
            trial_job = one.jobs.get(trial.number)
            if trial_job is not None and trial_job.job_id in jobs and jobs[trial_job.job_id].attempt:
                trials[trial_job.job_id] = trial
        for job_id, points in one.points.new_points(connection, trials).items():
            if len(points) or (not trials[job_id].latest and jobs[job_id].state in ENDED):
                self._take_points(connection, one, trials[job_id], jobs[job_id], points)

    def _take_points(
        self, connection: sa.Connection, one: DrivenStudy, trial: TrialRecord, job: StoredJob, points: Columns
    ) -> None:
        core, goals = one.core, one.core.state.goals
        others: dict[str, float] = {}
        if len(goals) > 1 or job.state in ENDED:
            last = {found.name: found.last for found in summaries(connection, job.id)}
            others = {
                name: value
                for name, value in last.items()
                if value is not None and not name.startswith("system/")
            }
        first = one.points.given(job.id) == len(points)  # read from the beginning, maybe again
        now_s, steps, values = time.time(), points.steps.tolist(), points.values.tolist()
        if len(steps) > 1:
            core.reported_many(trial.number, steps[:-1], values[:-1], at_s=now_s, fresh=not first)
        for step, value in zip(steps[-1:], values[-1:], strict=True):
            named = {**{name: v for name, v in others.items() if name in goals}, goals[0]: value}
            core.reported(trial.number, step, named, at_s=now_s, fresh=not first)
        if others and not len(points) and not trial.curve:
            core.reported(trial.number, 0, others, at_s=time.time())

    def _hear_ends(self, one: DrivenStudy, jobs: dict[int, StoredJob]) -> None:
        """Take in the ends of jobs that nobody asked to end."""
        core, config = one.core, one.core.state.config
        for trial in core.state.in_state("running"):
            trial_job = one.jobs.get(trial.number)
            job = (
                jobs.get(trial_job.job_id) if trial_job is not None and trial_job.job_id is not None else None
            )
            if job is None or next_step(config, trial, trial_job, job) != "told":
                continue
            now_s = time.time()
            # What a job reported is in the store before its end is.
            if job.state == "completed" and ends_at_limit(config):
                core.segment_done(trial.number, at_s=now_s)
            elif job.state == "completed":
                core.completed(trial.number, at_s=now_s)
            elif job.state == "stopped":
                core.stopped(trial.number, f"job {job.id} was stopped", at_s=now_s)
            elif job.cause == "host-lost" or _KILLED.match(job.message or ""):
                core.lost(trial.number, job.message or "its host was lost", at_s=now_s)
            else:
                text = f"job {job.id} failed: {job.message or job.cause}"
                lines = self._last_lines(job)
                core.failed(trial.number, f"{text}; its last lines: {lines}" if lines else text, at_s=now_s)

    def _last_lines(self, job: StoredJob) -> str:
        """Return the end of the log of the rank that failed first, as far as the job's message names it."""
        named = _RANK.search(job.message or "")
        folder = self._config.attempt_folder(job.id, job.attempt)
        reader = LogReader(folder / "run", folder / "launcher.log", ended=True)
        page = reader.tail(int(named[1]) if named else 0, LAST_LINES)
        return joined_lines(line.text for line in page.lines)

    def _hear_requests(self, one: DrivenStudy, requests: list[tuple[int, dict[str, Any]]]) -> None:
        for _, request in requests:
            try:
                carry_out(one.core, request, time.time())
            except (WeftError, KeyError) as error:
                _log.warning("study %s: %s", one.id, error)

    # -- deciding --------------------------------------------------------------------------------------

    def _decide(self, one: DrivenStudy, jobs: dict[int, StoredJob]) -> None:
        """Decide with the slots that are free; a job that is told to end holds its slot until it has."""
        core = one.core
        if core.state.state != "running":
            return
        trials = core.state.trials
        ending = sum(
            1
            for trial_job in one.jobs.values()
            if trial_job.job_id in jobs
            and jobs[trial_job.job_id].state in ("staging", "starting", "running")
            and trials[trial_job.trial].state != "running"
        )
        free = core.state.config.parallel - len(core.state.in_state("running")) - ending
        core.actions(free, time.time())

    def _steps(self, one: DrivenStudy, jobs: dict[int, StoredJob]) -> list[tuple[str, int]]:
        """Return what is to be done with jobs, by trial."""
        found: list[tuple[str, int]] = []
        config = one.core.state.config
        for trial in one.core.state:
            trial_job = one.jobs.get(trial.number)
            if trial.over and trial_job is None:
                continue
            job = (
                jobs.get(trial_job.job_id) if trial_job is not None and trial_job.job_id is not None else None
            )
            step = next_step(config, trial, trial_job, job)
            if step not in ("none", "told"):
                found.append((step, trial.number))
        return found

    async def _prepare(self, one: DrivenStudy) -> None:
        """Copy weights for trials that take those of others and are about to go on."""
        for step, number in one.steps:
            trial = one.core.state.trials[number]
            if step in ("resume", "retry") and trial.parent is not None:
                await asyncio.to_thread(take_weights, trial, lambda n: self._checkpoints(one, n))

    def _checkpoints(self, one: DrivenStudy, trial: int) -> Path:
        job_id = one.jobs[trial].job_id
        assert job_id is not None
        return self._config.job_folder(job_id) / "checkpoints"

    # -- doing -----------------------------------------------------------------------------------------

    def _commit(self, connection: sa.Connection, one: DrivenStudy, requests: list[int]) -> None:
        """Write a turn: new events, jobs, and what was asked for; all of it or nothing."""
        append_events(connection, one.id, one.events, one.new)
        for step, number in one.steps:
            self._do(connection, one, step, one.core.state.trials[number])
        forget_requests(connection, requests)
        if one.new or requests:
            state, stored = one.core.state, one.stored
            total = one.events + len(one.new)
            user = (stored.user_id, stored.user_name)
            keep_view(connection, one.id, state, total, user=user, project=stored.project)

    def _do(self, connection: sa.Connection, one: DrivenStudy, step: str, trial: TrialRecord) -> None:
        config, trial_job = one.core.state.config, one.jobs.get(trial.number)
        limit = limit_of(config, trial)
        if step == "wait":
            return
        if step == "submit":
            spec = trial_spec(config, trial, study_id=one.id)
            job_id = submit_job(
                connection,
                resolve(spec),
                user_id=one.stored.user_id,
                user_name=one.stored.user_name,
                snapshot=one.stored.snapshot,
            )
            put_trial_job(connection, one.id, TrialJob(trial.number, job_id, trial.starts, limit))
            return
        assert trial_job is not None
        assert trial_job.job_id is not None
        if step in ("resume", "retry", "release"):
            spec = with_words(spec_of(connection, trial_job.job_id), config, trial, one.id)
            text = msgspec.json.encode(spec).decode()
            connection.execute(
                sa.update(job_table).where(job_table.c.id == trial_job.job_id).values(spec=text)
            )
            put_trial_job(connection, one.id, TrialJob(trial.number, trial_job.job_id, trial.starts, limit))
        try:
            need_job(connection, trial_job.job_id)
            actions.act(connection, trial_job.job_id, step, user_name=one.stored.user_name, visible_to=None)
        except (StateError, UsageError) as error:  # it has just moved on: the next turn sees that
            _log.info("study %s, trial %s: %s", one.id, trial.number, error)
            if step in ("resume", "retry", "release"):
                put_trial_job(connection, one.id, trial_job)
