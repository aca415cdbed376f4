"""The life of an attempt: recorded, staged, started, watched, asked to end, and judged when it has ended.

Every step is one transaction that checks the lease, and can be done again: a service that is killed between two of
them leaves a row from which the next one goes on.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from weft.elastic.launcher.scale import pause, present_workers, scale, wanted_hosts
from weft.errors import WeftError
from weft.jobs.code.blobs import BlobStore
from weft.jobs.data.staging import variable_of
from weft.jobs.lifecycle import NextStep, after_attempt
from weft.jobs.service.attempts.carrying import CarriedFolders, bring_back, bring_to, new_hosts, note_of
from weft.jobs.service.attempts.command import (
    AttemptPlan,
    KeeperCommand,
    adopt_command,
    entry_of,
    is_elastic,
    keeper_command,
    service_environment,
)
from weft.jobs.service.attempts.keepers import KeeperProcess, Keepers, is_locked
from weft.jobs.service.attempts.processes import boot_id
from weft.jobs.service.attempts.records import RunningAttempt, begin_or_stop, end_attempt, move_if
from weft.jobs.service.attempts.staging import (
    data_variables,
    last_words,
    read_outcome,
    stage_code,
    store_outputs,
)
from weft.jobs.service.attempts.system_user import SystemUser
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.index import KnownJob
from weft.jobs.service.lease import Lease
from weft.jobs.service.owners import JobOwners
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.attempts import AttemptShare, StoredAttempt, add_attempt, change_attempt, open_attempts
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.jobs import StoredJob, move_job, need_job
from weft.jobs.store.snapshots import load_snapshot
from weft.jobs.store.tables import job as job_table

# Fetches data or makes variables for an attempt: job, specification, folder of the attempt -> variables.
VariableSource = Callable[[StoredJob, JobSpec, Path], Awaitable[Mapping[str, str]]]
# Takes what a completed job made: job, specification, folder of the attempt.
OutputSink = Callable[[StoredJob, JobSpec, Path], Awaitable[None]]

# What becomes of jobs that save a checkpoint and are queued again at once.
QUEUED_AGAIN = {
    "preempt": "gave way to another job, at its last checkpoint",
    "restart": "starts again at its last checkpoint, on advice",
}
SHARING_S = 600.0  # for which a host counts as sharing our folders once it was seen to
SAVING = frozenset({"pause", *QUEUED_AGAIN})


class Attempts:
    """Takes the steps of attempts; one service at a time does so, as its lease says."""

    def __init__(
        self,
        config: ServiceConfig,
        database: Database,
        blobs: BlobStore,
        keepers: Keepers,
        host: str,
        owners: JobOwners,
    ) -> None:
        self._config, self._database, self._blobs, self._keepers = config, database, blobs, keepers
        self._host, self._owners = host, owners
        self._environ = service_environment()
        self.lease: Lease | None = None
        self.may_spread = False  # there are other hosts than this machine
        self.on_host_lost: Callable[[], None] = lambda: None  # have hosts looked at
        self.sources: list[VariableSource] = []
        self.sinks: list[OutputSink] = []
        self._sharing: dict[str, float] = {}  # hosts that share our folders, and when that was seen

    async def write(self, work: Callable[[sa.Connection], Any]) -> Any:
        """Write as the holder of the lease; LeaseLost if it is not ours any more."""
        lease = self.lease
        assert lease is not None

        def fenced(connection: sa.Connection) -> Any:
            lease.check(connection)
            return work(connection)

        return await self._database.write(fenced)

    def folder(self, attempt: StoredAttempt) -> Path:
        return self._config.attempt_folder(attempt.job_id, attempt.number)

    # -- starting ---------------------------------------------------------------------------------

    async def record(self, known: KnownJob, shares: tuple[AttemptShare, ...]) -> StoredAttempt:
        """Record the start of a queued job, before anything is started; StateError if it is queued no more."""
        job_id = known.job.id

        def work(connection: sa.Connection) -> StoredAttempt:
            job = need_job(connection, job_id)
            number = job.attempt + 1
            move_job(
                connection,
                job_id,
                "staging",
                attempt=number,
                workers=sum(share.workers for share in shares),
                cause=None,
            )
            folder = self._config.attempt_folder(job_id, number)
            add_attempt(
                connection,
                job_id,
                number,
                run_dir=str(folder / "run"),
                shares=shares,
                token=secrets.token_hex(16),
                keeper_host=self._host,
                boot_id=boot_id(),
            )
            return open_attempts(connection, job_id)[-1]

        found: StoredAttempt = await self.write(work)
        return found

    async def stage(self, running: RunningAttempt) -> None:
        """Write code and data of an attempt, then say that it starts."""
        job, folder = running.known.job, self.folder(running.attempt)
        snapshot = None
        if job.snapshot is not None:
            digest = job.snapshot
            snapshot = await self._database.read(lambda connection: load_snapshot(connection, digest))
        owner = await self._owners.of(job.user_id, job.user_name)
        checkpoints = self._config.job_folder(job.id) / "checkpoints"
        await asyncio.to_thread(stage_code, self._blobs, snapshot, folder, checkpoints, owner)
        await self.write(lambda connection: begin_or_stop(connection, running))

    async def start(self, running: RunningAttempt) -> KeeperProcess | None:
        """Start the keeper of an attempt, or find the one that was started; None: look again."""
        folder, attempt = self.folder(running.attempt), running.attempt
        keeper = self._keepers.find(folder, attempt.token)
        if keeper is None and is_locked(folder):
            return None  # it is just being started
        if keeper is None:
            command = await self._command(running, keeper_command)
            await self._carry(running, command)
            keeper = await asyncio.to_thread(self._keepers.start, folder, command)
        if keeper is not None:
            await self._note_keeper(running, keeper)
        return keeper

    async def _carry(self, running: RunningAttempt, command: KeeperCommand) -> None:
        """Bring code and data to hosts that do not share this service's folders; Slurm chooses its nodes later."""
        if running.known.spec.engine not in ("auto", "local", "ssh", "mpi"):
            return
        folder, checkpoints = (
            self.folder(running.attempt),
            self._config.job_folder(running.id) / "checkpoints",
        )
        staged = [
            command.env[name] for name in map(variable_of, running.known.spec.data) if name in command.staged
        ]
        note = note_of(folder, checkpoints, staged)
        hosts = [share.host for share in running.attempt.shares]
        await self._bring(hosts if staged else self._unsure(hosts), folder, note, command.owner)

    def _unsure(self, hosts: Sequence[str]) -> list[str]:
        """Return the hosts that were not seen to share our folders lately: asking one costs a start a connection."""
        return [host for host in hosts if time.monotonic() - self._sharing.get(host, -SHARING_S) >= SHARING_S]

    async def _bring(
        self, hosts: Sequence[str], folder: Path, note: CarriedFolders | None, owner: SystemUser | None
    ) -> None:
        carried = await asyncio.to_thread(bring_to, hosts, folder, note, owner)
        for host, lacked in carried.items():
            if lacked:
                self._sharing.pop(host, None)
            else:
                self._sharing[host] = time.monotonic()

    async def adopt(self, running: RunningAttempt) -> KeeperProcess | None:
        """Start another keeper for an elastic run that goes on without one."""
        command = await self._command(running, adopt_command)
        keeper = await asyncio.to_thread(self._keepers.start, self.folder(running.attempt), command)
        if keeper is not None:
            await self._note_keeper(running, keeper)
        return keeper

    async def _command(self, running: RunningAttempt, make: Callable[..., KeeperCommand]) -> KeeperCommand:
        known, attempt, folder = running.known, running.attempt, self.folder(running.attempt)
        variables: dict[str, str] = {}
        for source in self.sources if make is keeper_command else ():
            variables |= await source(known.job, known.spec, folder)
        staged = {name: variables[key] for name in known.spec.data if (key := variable_of(name)) in variables}
        if make is keeper_command:
            variables |= data_variables(known.spec, staged)
        plan = AttemptPlan(
            job_id=attempt.job_id,
            number=attempt.number,
            name=known.job.name,
            resolved=known.resolved,
            shares=attempt.shares,
            folder=folder,
            checkpoints=self._config.job_folder(attempt.job_id) / "checkpoints",
            owner=await self._owners.of(known.job.user_id, known.job.user_name),
            token=attempt.token,
            may_spread=self.may_spread,
            variables=variables,
        )
        made = make(plan, python=sys.executable, environ=self._environ, grace_s=self._config.pause_grace_s)
        return replace(made, staged=frozenset(map(variable_of, staged)))

    async def _note_keeper(self, running: RunningAttempt, keeper: KeeperProcess) -> None:
        changes: dict[str, Any] = {
            "keeper_pid": keeper.pid,
            "keeper_started": keeper.ticks,
            "keeper_host": self._host,
            "boot_id": boot_id(),
        }
        attempt = running.attempt
        await self.write(lambda c: change_attempt(c, attempt.job_id, attempt.number, **changes))
        running.attempt = replace(attempt, **changes)

    def has_begun(self, running: RunningAttempt) -> bool:
        """Return whether the launcher of an attempt has its plan, and starts workers."""
        return (self.folder(running.attempt) / "run" / "plan.json").exists()

    async def say_running(self, running: RunningAttempt) -> None:
        """Note that the workers of an attempt have been started."""
        await self.write(lambda connection: move_if(connection, running.id, ("starting",), "running"))

    # -- asking to end ----------------------------------------------------------------------------

    async def ask(self, running: RunningAttempt) -> None:
        """Ask an attempt to end, a little more firmly after a while."""
        pausing = running.known.job.wanted in SAVING
        patience_s = self._config.pause_grace_s + 5.0 if pausing else self._config.stop_grace_s
        asked, since_s = running.attempt.asked, (now_ms() - (running.attempt.asked_ms or 0)) / 1000
        if asked is None and self._may_pause(running):
            await self._signal(running, "pause")
        elif asked is None or (asked == "pause" and (since_s > patience_s or not pausing)):
            await self._signal(running, "term")
        elif asked == "term" and since_s > patience_s:
            await self._signal(running, "again")
        elif asked == "again" and since_s > self._config.kill_after_s:
            await self._signal(running, "kill")

    def _may_pause(self, running: RunningAttempt) -> bool:
        """Return whether a run can be told to save its next step and end; others save when they are told to end."""
        run = self.folder(running.attempt) / "run"
        elastic = is_elastic(running.known.resolved) and (run / "elastic" / "control.json").exists()
        return elastic and running.known.job.wanted in SAVING

    async def _signal(self, running: RunningAttempt, how: str) -> None:
        attempt = running.attempt
        # Recorded first: a second signal ends workers at once, so that none may be sent twice.
        changes: dict[str, Any] = {"asked": how, "asked_ms": now_ms()}
        await self.write(lambda c: change_attempt(c, attempt.job_id, attempt.number, **changes))
        running.attempt = replace(attempt, **changes)
        if how == "pause":
            await asyncio.to_thread(pause, self.folder(attempt) / "run")
        elif how == "kill":
            self._keepers.kill(running.id, attempt.token)
        else:
            self._keepers.signal(running.id, signal.SIGTERM)

    # -- other sizes ------------------------------------------------------------------------------

    async def resize(
        self, running: RunningAttempt, shares: tuple[AttemptShare, ...], *, keep: Sequence[AttemptShare]
    ) -> None:
        """Have an elastic run go on with other workers; `keep` is what it holds until they have left."""
        attempt, job = running.attempt, running.known.job
        grown = new_hosts(attempt.shares, shares)
        if grown:
            owner = await self._owners.of(job.user_id, job.user_name)
            await self._bring(grown, self.folder(attempt), None, owner)
        entries = [entry_of(share) for share in shares]
        await asyncio.to_thread(scale, self.folder(attempt) / "run", entries)
        held = tuple(keep)
        hosts = {share.host: share.workers for share in shares}
        workers = sum(hosts.values())

        def work(connection: sa.Connection) -> None:
            change_attempt(connection, attempt.job_id, attempt.number, shares=held)
            add_event(
                connection,
                f"job:{attempt.job_id}",
                "resized",
                job=attempt.job_id,
                workers=workers,
                hosts=hosts,
            )

        await self.write(work)
        running.attempt = replace(attempt, shares=held)

    def target_of(self, known: KnownJob, attempt: StoredAttempt) -> tuple[AttemptShare, ...] | None:
        """Return the size that a run was told to have by an earlier service, and does not have yet."""
        run = self.folder(attempt) / "run"
        if not is_elastic(known.resolved) or not (run / "elastic" / "control.json").exists():
            return None
        try:
            entries = wanted_hosts(run)
        except WeftError:
            return None
        wanted = tuple(AttemptShare(e.name, e.workers or 0, e.cpus, e.gpus or ()) for e in entries)
        return wanted if wanted != attempt.shares else None

    async def has_size(self, running: RunningAttempt, shares: Sequence[AttemptShare]) -> bool:
        """Return whether no host has more workers of a run than it should; those that leave take a step's time."""
        present = await asyncio.to_thread(present_workers, self.folder(running.attempt) / "run")
        wanted = {share.host: share.workers for share in shares}
        return all(count <= wanted.get(host, 0) for host, count in present.items())

    async def note_shares(self, running: RunningAttempt, shares: tuple[AttemptShare, ...]) -> None:
        """Record what a job holds once the workers that were told to go have gone."""
        attempt, workers = running.attempt, sum(share.workers for share in shares)

        def work(connection: sa.Connection) -> None:
            change_attempt(connection, attempt.job_id, attempt.number, shares=shares)
            connection.execute(
                sa.update(job_table).where(job_table.c.id == attempt.job_id).values(workers=workers)
            )
            for topic in ("jobs", f"job:{attempt.job_id}"):
                add_event(connection, topic, "changed", job=attempt.job_id, workers=workers)

        await self.write(work)
        running.attempt = replace(attempt, shares=shares)

    # -- ends -------------------------------------------------------------------------------------

    async def finish(self, running: RunningAttempt) -> NextStep:
        """Judge an attempt whose keeper has ended, and move its job on."""
        known, attempt, folder = running.known, running.attempt, self.folder(running.attempt)
        outcome: Mapping[str, Any] | None = await asyncio.to_thread(read_outcome, folder)
        if outcome is None:
            outcome = self._guess(running)
        await self._fetch(running)
        retry = known.spec.retry
        wanted = (await self._database.read(lambda c: need_job(c, running.id))).wanted
        if wanted is None and outcome is not None and outcome.get("paused"):
            wanted = "pause"  # by `weft pause` on the run itself
        following = after_attempt(
            outcome,
            wanted="pause" if wanted in SAVING else wanted,
            timed_out=wanted == "time-out",
            retries_left=retry.max - known.job.retries,
            attempt=known.job.retries + 1,
            retry_on=retry.on,
            backoff_s=known.resolved.backoff_s,
            avoid_hosts=retry.avoid_hosts,
        )
        if following.state == "paused" and wanted in QUEUED_AGAIN:
            following = replace(following, state="queued", message=QUEUED_AGAIN[wanted])
        await self.write(lambda connection: end_attempt(connection, known.job, attempt, outcome, following))
        if following.cause == "host-lost":
            self.on_host_lost()
        return following

    async def _fetch(self, running: RunningAttempt) -> None:
        """Fetch what an attempt wrote on hosts with folders of their own; a host that is lost keeps it."""
        job = running.known.job
        try:
            owner = await self._owners.of(job.user_id, job.user_name)
            await asyncio.to_thread(bring_back, self.folder(running.attempt), owner)
        except WeftError as error:
            text = f"outputs were not fetched: {error}"
            await self.write(lambda c: add_event(c, f"job:{job.id}", "note", job=job.id, text=text))

    def _guess(self, running: RunningAttempt) -> dict[str, Any] | None:
        """Return the outcome of a launcher that wrote none: refused by `weft run`, or on a full disk."""
        folder, begun = self.folder(running.attempt), self.has_begun(running)
        if running.code == 0:
            return {"code": 0}
        if begun or (running.code is not None and running.code < 0):
            return None
        words = last_words(folder)
        if not words and running.code is None:  # killed before it said anything, while no service watched
            return None
        words = words or f"the launcher ended with code {running.code}"
        remote = any(share.host != self._host for share in running.attempt.shares)
        failure = {"rank": None, "host": "the launcher", "reason": words}
        if remote and "must be a file" not in words:  # ssh, or a check of the hosts
            failure["reason"] = f"lost before the start: {words}"
        return {"code": running.code or 1, "failure": failure}

    async def store(self, running: RunningAttempt) -> None:
        """Keep the outputs of a job whose workers have all ended well; it is complete then."""
        known, folder = running.known, self.folder(running.attempt)
        message = "all workers ended well"
        try:
            owner = await self._owners.of(known.job.user_id, known.job.user_name)
            missing = await asyncio.to_thread(store_outputs, known.spec, folder, owner)
            if missing:
                message += f"; no output {', '.join(missing)} was found"
            for sink in self.sinks:
                await sink(known.job, known.spec, folder)
        except (OSError, WeftError) as error:
            reason = f"it ran well, but its outputs could not be stored: {error}"
            await self.write(
                lambda c: move_if(c, running.id, ("storing",), "failed", message=reason, cause="error")
            )
            return
        await self.write(
            lambda c: move_if(c, running.id, ("storing",), "completed", message=message, progress=1.0)
        )

    async def give_back(self, running: RunningAttempt, message: str, wait_s: float) -> None:
        """Queue a job again whose start failed for a reason that is not its own, such as a full disk."""
        job, attempt = running.known.job, running.attempt
        step = NextStep("queued", None, message, wait_s)
        await self.write(lambda connection: end_attempt(connection, job, attempt, None, step))

    async def refuse(self, running: RunningAttempt, message: str) -> None:
        """Fail a job that cannot be started."""
        job, attempt = running.known.job, running.attempt
        step = NextStep("failed", "error", message)
        await self.write(lambda connection: end_attempt(connection, job, attempt, None, step))
