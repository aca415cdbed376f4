"""The job service: what the API, the doors and tests call to submit jobs and act on them.

service = JobService(ServiceConfig(folder=data), Database.open(address))
async with service.running():
    (number,) = await service.submit(spec, user_id=1, user_name="ann", snapshot=None)
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.advice.advisor import AdvisedJob, Advisor
from weft.jobs.advice.model import ActionName, Finding
from weft.jobs.code.blobs import BlobStore
from weft.jobs.data.parts import DataParts
from weft.jobs.lifecycle import ENDED, StateError
from weft.jobs.reports.fanout import PointFanout
from weft.jobs.reports.tailer import Tailer
from weft.jobs.scheduler.decide import Scheduler
from weft.jobs.scheduler.explain import Reason, never_fits_text
from weft.jobs.scheduler.model import Resources
from weft.jobs.service import actions
from weft.jobs.service.attempts.carrying import add_advice
from weft.jobs.service.attempts.keepers import Keepers
from weft.jobs.service.attempts.steps import Attempts
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.dispatcher import Dispatcher
from weft.jobs.service.engines import check_engine, engine_notes, read_mounts
from weft.jobs.service.hosts import HostWatch, survey_host
from weft.jobs.service.index import KnownJob, needs_of, request_of
from weft.jobs.service.needs import check_needs
from weft.jobs.service.owners import JobOwners
from weft.jobs.service.schedules import Schedules
from weft.jobs.service.usage import Accounts, set_quota
from weft.jobs.service.variables import ServiceVariables
from weft.jobs.spec.cron import next_time_ms
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import ResolvedSpec, SpecError, expand, resolve
from weft.jobs.store import hosts as host_store
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_audit, add_event
from weft.jobs.store.jobs import StoredJob, need_job, spec_of, submit_job, waiting_for
from weft.jobs.store.snapshots import load_snapshot
from weft.jobs.store.tables import job as job_table
from weft.jobs.studies.driver import StudyDriver
from weft.jobs.studies.states import StudyStates
from weft.jobs.vision.parts import VisionParts
from weft.jobs.vision.training_parts import TrainingParts
from weft.launch.agent.here import is_this_machine
from weft.text import format_size
from weft.topology.detect import detect


class JobService:
    """Jobs, hosts and their scheduling on one database and one data folder."""

    def __init__(self, config: ServiceConfig, database: Database) -> None:
        self.config, self.database, self.folder = config, database, config.folder
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        self.blobs = BlobStore(config.folder / "blobs")
        self.host = detect().name
        self._keepers = Keepers(self._keeper_ended)
        self.owners = JobOwners(config.jobs_as, database)
        self.attempts = Attempts(config, database, self.blobs, self._keepers, self.host, self.owners)
        self.points = PointFanout()
        self.tailer = Tailer(database, self.points)
        self.advisor = Advisor(database, self._advised_jobs, self.act, self.deliver)
        self.variables = ServiceVariables(config.folder, database)
        self.attempts.sources.append(self.variables.of)
        self.data = DataParts(database, config.folder)
        self.data.deployments.run_as = self.owners.of
        self.attempts.sources.append(self.data.bring)
        self.vision = VisionParts(database, config.folder)
        self.attempts.sinks.append(self.data.carry)
        self.trainings = TrainingParts(
            database, config.folder / "vision", self.blobs, self.data, lambda: self.vision.library
        )
        self.attempts.sources.append(self.trainings.bring)
        self.attempts.sinks.append(self.trainings.carry)
        self.dispatcher = Dispatcher(config, database, self.attempts, self._keepers, self.tailer)
        self._watch = HostWatch(config, database, self.host)
        self.attempts.on_host_lost = self._watch.hurry
        self._schedules = Schedules(database, self.attempts)
        self.studies = StudyDriver(config, database, self.attempts, self.wake)
        self.tailer.on_points.append(self.studies.heard)
        self.study_states = StudyStates()
        accounts = Accounts(config, database, self.attempts)
        self.dispatcher.chores += [self._watch.look, self._schedules.look, self.studies.look, accounts.look]

    def _advised_jobs(self) -> Iterator[AdvisedJob]:
        """Yield the jobs that run here, for advice."""
        for one in self.tailer.followed():
            yield AdvisedJob(one.job_id, one.attempt, one.since_ms, one.spec)

    def _keeper_ended(self, job_id: int, code: int | None) -> None:
        self.dispatcher.following.keeper_ended(job_id, code)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Schedule while the block runs; jobs go on after it."""
        await self._watch.add_this_host()
        async with (
            self.tailer.running(),
            self.data.running(lambda: self.dispatcher.leading),
            self.vision.running(),
        ):
            loops = (self.dispatcher.run(), self.advisor.run(), self.studies.listen())
            tasks = [asyncio.create_task(loop) for loop in loops]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task
                await self._watch.close()
                self._keepers.close()

    def wake(self) -> None:
        """Have the dispatcher look at once: something has changed."""
        self.dispatcher.wake()

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(
        self,
        spec: JobSpec,
        *,
        user_id: int,
        user_name: str,
        snapshot: str | None = None,
        parent_id: int | None = None,
        dry_run: bool = False,
    ) -> tuple[int, ...]:
        """Queue a job, or all jobs of an array; SpecError if it cannot be understood, or could never run."""
        await self.owners.of(user_id, user_name)
        resolve(spec)
        parts = [resolve(part) for part in expand(spec)]
        hosts = await self.database.read(host_store.list_hosts)
        scheduler = Scheduler(map(host_store.replace_open, hosts), self.config.policy)
        check_engine(spec)
        for resolved in parts:
            _check_fits(resolved, scheduler)
        if parts:  # those of an array name the same secrets and data
            first_part = parts[0]
            await self.database.read(
                lambda c: check_needs(
                    c, first_part, needs_of(first_part), user_id=user_id, user_name=user_name
                )
            )
        if snapshot is not None:
            await self.database.read(lambda connection: load_snapshot(connection, snapshot))
        if dry_run:
            return ()
        kind = "schedule" if spec.schedule is not None else "run"
        first = next_time_ms(spec.schedule) if spec.schedule is not None else 0
        made = [resolve(spec)] if kind == "schedule" else parts

        def work(connection: sa.Connection) -> tuple[int, ...]:
            return tuple(
                submit_job(
                    connection,
                    resolved,
                    user_id=user_id,
                    user_name=user_name,
                    snapshot=snapshot,
                    parent_id=parent_id,
                    kind=kind,
                    not_before_ms=first,
                )
                for resolved in made
            )

        numbers = await self.database.write(work)
        self.wake()
        return numbers

    def notes(self, spec: JobSpec) -> tuple[str, ...]:
        """Return what a submitter should know of a job that can be queued."""
        return engine_notes(spec, self.folder.resolve(), read_mounts())

    async def act(
        self, job_id: int, action: str, *, user_name: str, visible_to: int | None = None, **arguments: Any
    ) -> None:
        """Stop, pause, resume, retry, hold, release, scale (workers) or prioritize (value) a job."""
        await self.database.write(
            lambda c: actions.act(c, job_id, action, user_name=user_name, visible_to=visible_to, **arguments)
        )
        self.wake()

    async def deliver(self, job_id: int, attempt: int, found: Finding, action: ActionName) -> None:
        """Hand an action to the script of an attempt, in the file that `weft.report` reads."""
        job = await self.database.read(lambda c: need_job(c, job_id))
        owner = await self.owners.of(job.user_id, job.user_name)
        folder = self.config.attempt_folder(job_id, attempt)
        await asyncio.to_thread(add_advice, folder, action, found.rule, found.text, owner)

    async def clone(
        self,
        job_id: int,
        changes: dict[str, Any],
        *,
        user_id: int,
        user_name: str,
        visible_to: int | None = None,
    ) -> tuple[int, ...]:
        """Submit a job again with the same code, and changes merged into its specification."""

        def work(connection: sa.Connection) -> tuple[StoredJob, JobSpec]:
            return need_job(connection, job_id, visible_to=visible_to), spec_of(connection, job_id)

        job, spec = await self.database.read(work)
        return await self.submit(
            actions.merged_spec(spec, changes),
            user_id=user_id,
            user_name=user_name,
            snapshot=job.snapshot,
            parent_id=job_id,
        )

    async def remove(self, job_id: int, *, user_name: str, visible_to: int | None = None) -> None:
        """Remove a job that has ended, with its files; one that others wait for stays."""

        def work(connection: sa.Connection) -> None:
            job = need_job(connection, job_id, visible_to=visible_to)
            if job.state not in ENDED:
                raise StateError(
                    f"a job must have ended to be removed, got one that is {job.state}; stop it first"
                )
            waiting = waiting_for(connection, [job_id])
            if waiting and job.state != "completed":
                raise StateError(
                    f"a job must not be waited for to be removed, got job {waiting[0]} that does; stop that first"
                )
            connection.execute(sa.delete(job_table).where(job_table.c.id == job_id))
            add_event(connection, "jobs", "removed", job=job_id)
            add_audit(connection, user_name, "remove", f"job {job_id}", name=job.name)

        await self.database.write(work)
        await asyncio.to_thread(shutil.rmtree, self.config.job_folder(job_id), ignore_errors=True)
        self.wake()

    def reasons(self) -> Mapping[int, Reason]:
        """Return why each waiting job waits; empty on a service that does not hold the lease."""
        return {**self.dispatcher.cluster.reasons(), **self._schedules.reasons()}

    def reason(self, job_id: int) -> Reason | None:
        """Return why one job waits; None if it does not."""
        return self.dispatcher.cluster.reason(job_id) or self._schedules.reasons().get(job_id)

    def log_folder(self, job_id: int, attempt: int) -> Path:
        """Return the folder of an attempt: launcher.log, run/rank-N.log."""
        return self.config.attempt_folder(job_id, attempt)

    async def set_quota(self, user_id: int, *, weight: float = 1.0, most: Resources | None = None) -> None:
        """Give a user a weight in the fair share, and a limit to what they hold at a time."""
        await self.database.write(lambda c: set_quota(c, user_id, weight=weight, most=most))
        self.wake()

    # -- hosts ------------------------------------------------------------------------------------

    async def add_host(self, name: str, labels: Iterable[str] = (), rack: str = "") -> str:
        """Add a host that ssh reaches, or look at a known one again, and return the name that it has here.

        ConnectError if it does not answer.
        """
        if is_this_machine(name):
            name = self.host  # one machine is one host, whatever it is called
        found = await asyncio.to_thread(survey_host, name)
        await self.database.write(
            lambda c: host_store.put_host(c, name, found, labels=tuple(labels), rack=rack)
        )
        self.wake()
        return name

    async def drain(self, name: str) -> None:
        """Place no new workers on a host; those that run there go on."""
        await self._change_host(name, state="drained")

    async def undrain(self, name: str) -> None:
        """Place workers on a host again."""
        await self._change_host(name, state="up", message=None)

    async def set_labels(self, name: str, labels: Iterable[str], rack: str | None = None) -> None:
        """Give a host other labels, and another rack if one is named."""
        changes: dict[str, Any] = {"labels": tuple(labels)}
        await self._change_host(name, **changes, **({"rack": rack} if rack is not None else {}))

    async def remove_host(self, name: str) -> None:
        """Forget a host; this machine comes back with the next start."""
        if self.dispatcher.cluster.used().get(name):
            raise StateError(
                f"a host must be without jobs to be removed, got {name} that has some; drain it first"
            )
        await self.database.write(lambda c: host_store.remove_host(c, name))
        self.wake()

    async def _change_host(self, name: str, **changes: Any) -> None:
        await self.database.write(lambda c: host_store.change_host(c, name, **changes))
        self.wake()

    def used(self) -> Mapping[str, Resources]:
        """Return what jobs hold of each host."""
        return self.dispatcher.cluster.used()

    # -- troubles ---------------------------------------------------------------------------------

    def troubles(self) -> tuple[str, ...]:
        """Return what a person should know about the service itself, such as a full disk; jobs go on meanwhile."""
        found = []
        if self.dispatcher.trouble:
            found.append(f"the store cannot be used: {self.dispatcher.trouble}")
        with suppress(OSError):
            free = shutil.disk_usage(self.folder).free
            if free < self.config.low_disk_bytes:
                found.append(f"the disk of {self.folder} is almost full: {format_size(free)} are left")
        return tuple(found)


def _check_fits(resolved: ResolvedSpec, scheduler: Scheduler) -> None:
    """Refuse a job that would not fit if nothing else ran; hosts that are lost may come back."""
    request = request_of(KnownJob(_unborn(resolved), resolved))
    if not scheduler.can_ever_run(request):
        raise actions.never_fits(never_fits_text(scheduler, request))


def _unborn(resolved: ResolvedSpec) -> StoredJob:
    """Return a job that is not in the store yet, to see whether it would fit."""
    spec = resolved.spec
    return StoredJob(
        id=0, name=resolved.name, project=spec.project, user_id=0, user_name="", kind="run", state="queued",
        wanted=None, queue=spec.queue.name, priority=spec.queue.priority, snapshot=None, attempt=0, retries=0,
        avoid="[]", workers=0, min_workers=resolved.min_workers, max_workers=resolved.max_workers,
        workers_limit=None, progress=None, cause=None, message=None, not_before_ms=0, created_ms=0, queued_ms=0,
        started_ms=None, ended_ms=None, pinned=False, parent_id=None, tags={},
    )  # fmt: skip


__all__ = ["JobService", "SpecError", "UsageError"]
