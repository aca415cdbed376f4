"""The dispatcher: the loop that decides which jobs run, has it done, and notices ends.

It looks at the store's events, so that it hears of changes that any service on the same database made. Only the holder
of the lease decides; the others wait to take over. What it knows is an index of the store and can be built anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.lifecycle import ACTIVE, ENDED, WAITING, StateError
from weft.jobs.reports.tailer import Tailer
from weft.jobs.scheduler.decide import Scheduler
from weft.jobs.scheduler.model import (
    Action,
    Allocation,
    Grow,
    Pause,
    Placed,
    Shrink,
    Start,
    merged,
)
from weft.jobs.scheduler.preemption import loosest
from weft.jobs.service.attempts.following import Following
from weft.jobs.service.attempts.keepers import Keepers
from weft.jobs.service.attempts.records import RunningAttempt, held_meanwhile
from weft.jobs.service.attempts.steps import Attempts
from weft.jobs.service.cluster import ClusterIndex
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.index import (
    KnownJob,
    allocation_of,
    known_job,
    needs_of,
    now_s,
)
from weft.jobs.service.lease import LeaseLost, give_up, new_holder, take
from weft.jobs.service.usage import policy_with_quotas
from weft.jobs.store.attempts import AttemptShare, StoredAttempt, attempts_of, open_attempts
from weft.jobs.store.database import Database
from weft.jobs.store.events import events_after, newest_event
from weft.jobs.store.hosts import list_hosts
from weft.jobs.store.jobs import change_job, dependencies_of, jobs_in, need_job, waiting_for

TURN_S = 0.1  # between two looks while a job starts or changes its size
TOPICS = ("jobs", "hosts", "quotas")
STAND_BY_S = 5.0  # between two looks of a service that does not decide
_log = logging.getLogger(__name__)


class Dispatcher:
    """One service's part in the scheduling: it decides while it holds the lease."""

    def __init__(
        self, config: ServiceConfig, database: Database, attempts: Attempts, keepers: Keepers, tailer: Tailer
    ) -> None:
        self._config, self._database, self._attempts = config, database, attempts
        self._holder = new_holder()
        self._woken = asyncio.Event()
        self._renew_at = self._look_at = 0.0
        self._last_event = 0
        self.chores: list[Callable[[Dispatcher, float], object]] = []
        self.following = Following(
            config,
            attempts,
            keepers,
            tailer,
            refresh=self.refresh,
            freed=self._freed,
            resized=self._resized,
            wake=self.wake,
        )
        self.trouble = ""
        self._reset()

    def _reset(self) -> None:
        self.leading = False
        self.cluster = ClusterIndex(self._config.policy)

    @property
    def scheduler(self) -> Scheduler:
        return self.cluster.scheduler

    def wake(self) -> None:
        """Look at once: something has changed."""
        self._woken.set()

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide until cancelled; keepers go on without it."""
        try:
            while True:
                await self._try_turn()
                pause_s = TURN_S if self.following.busy else self._config.tick_s
                # Not wait_for: in Python 3.11 it may lose a cancellation that comes together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._woken.wait()
        finally:
            await self._close()

    async def _try_turn(self) -> None:
        self._woken.clear()
        try:
            await self._turn()
            self.trouble = self.following.trouble
            self.following.trouble = ""
        except LeaseLost:
            await self._stand_down()
        except (sa.exc.SQLAlchemyError, OSError) as error:
            # A full disk, or a database that is away: jobs go on, and so shall we when it is over.
            self.trouble = " ".join(str(getattr(error, "orig", None) or error).split())
            _log.error("the store cannot be used: %s", self.trouble)
            await self._stand_down()
        except Exception:
            _log.exception("a turn failed; the store is read again")
            await self._stand_down()

    async def _turn(self) -> None:
        now = now_s()
        if now >= self._renew_at:
            lease_ms = round(self._config.lease_s * 1000)
            lease = await self._database.write(lambda c: take(c, self._holder, lease_ms))
            self._renew_at = now + self._config.lease_s / 4
            if lease is None:
                await self._stand_by(now)
                return
            if not self.leading or lease != self._attempts.lease:
                self._attempts.lease = lease
                await self._load()
        if not self.leading:
            return
        await self._sync()
        await self.following.turn()
        for chore in self.chores:
            result = chore(self, now)
            if asyncio.iscoroutine(result):
                await result
        await self._hold_to_limits()
        await self._decide()

    async def _stand_by(self, now_s: float) -> None:
        """Let another service decide, and know what it knows, to answer why jobs wait."""
        if self.leading:
            await self._stand_down()
        if now_s >= self._look_at:
            self._look_at = now_s + STAND_BY_S
            await self._load(leading=False)
            self.cluster.decide()

    async def _stand_down(self) -> None:
        """Forget everything: somebody else decides now, or the store must be read again."""
        await self.following.close()
        self._reset()

    async def _close(self) -> None:
        await self._stand_down()
        with suppress(sa.exc.SQLAlchemyError, OSError):
            await self._database.write(lambda connection: give_up(connection, self._holder))

    # -- what the store knows ---------------------------------------------------------------------

    async def _load(self, *, leading: bool = True) -> None:
        """Build the index; who decides finds the keepers of jobs that were started before."""
        await self.following.close()
        self._reset()
        self._last_event = await self._database.read(newest_event)
        await self._load_policy()
        await self._load_hosts()
        jobs = await self._database.read(lambda c: jobs_in(c, states=WAITING | ACTIVE))
        found = [(job, spec) for job, spec in jobs if job.kind == "run"]
        after = await self._database.read(dependencies_of)
        attempts = {attempt.job_id: attempt for attempt in await self._database.read(open_attempts)}
        for job, _ in found:
            if job.state == "storing":  # its attempt has ended
                attempts[job.id] = (await self._database.read(partial(attempts_of, job_id=job.id)))[-1]
        self.leading = leading
        for job, spec in found:
            self._take_in(known_job(job, spec, after.get(job.id, {})), attempts.get(job.id))

    async def _load_policy(self) -> None:
        policy = self._config.policy
        self.cluster.set_policy(await self._database.read(lambda c: policy_with_quotas(c, policy)))

    async def _load_hosts(self) -> None:
        self.cluster.set_hosts(await self._database.read(list_hosts))
        self._attempts.may_spread = len(self.cluster.hosts) > 1

    async def _sync(self) -> None:
        """Hear of changes that any service made."""
        while True:
            events = await self._database.read(partial(events_after, last_id=self._last_event, topics=TOPICS))
            if not events:
                return
            self._last_event = events[-1].id
            topics = {event.topic for event in events}
            if "hosts" in topics:
                await self._load_hosts()
            if "quotas" in topics:
                await self._load_policy()
            about = [event.data for event in events if event.topic == "jobs"]
            await self.refresh({int(data["job"]) for data in about if "job" in data})

    async def refresh(self, ids: set[int]) -> None:
        """Read some jobs again, and those that wait for them."""
        if not ids:
            return
        wanted = sorted(ids | set(await self._database.read(partial(waiting_for, jobs=sorted(ids)))))
        found = await self._database.read(lambda c: jobs_in(c, ids=wanted))
        after = await self._database.read(lambda c: dependencies_of(c, wanted))
        for job, spec in found:
            if job.kind == "run":
                self._take_in(known_job(job, spec, after.get(job.id, {})))
        for job_id in set(wanted) - {job.id for job, _ in found}:
            self.cluster.forget(job_id)

    def _take_in(self, known: KnownJob, attempt: StoredAttempt | None = None) -> None:
        """Bring the index to what the store says of a job."""
        job, running = known.job, self.following.running.get(known.job.id)
        if running is not None:
            running.known = known
            if job.state in WAITING:  # its attempt is being ended; the job is read again when that is done
                return
        if job.state in ENDED:
            self.cluster.forget(job.id)
        elif job.state in WAITING:
            self.cluster.set_waiting(known)
        elif running is not None or attempt is None:
            self.cluster.set_active(known)
        else:
            self._follow_again(known, attempt)

    def _follow_again(self, known: KnownJob, attempt: StoredAttempt) -> None:
        """Go on with an attempt that was started before; who does not decide only notes what it holds."""
        target = self._attempts.target_of(known, attempt)
        if attempt.ended_ms is None:
            self.cluster.place_again(known, attempt, target)
        if self.leading:
            self.following.add(known, attempt).target = target

    def _freed(self, job_id: int) -> None:
        """Note that a job holds nothing any more."""
        if job_id in self.scheduler.placed:
            self.cluster.free(job_id)

    # -- deciding ---------------------------------------------------------------------------------

    async def _decide(self) -> None:
        if not self.cluster.changed and now_s() - self.cluster.decided_s < self._config.tick_s:
            return
        for action in self.cluster.decide().actions:
            await self._carry_out(action)

    async def _carry_out(self, action: Action) -> None:
        """Have something done; a job that ended a moment ago is left alone."""
        placed = self.scheduler.placed.get(action.job)
        match action:
            case Start(job_id, allocation) if job_id in self.cluster.known:
                await self._begin(self.cluster.known[job_id], allocation)
            case Pause(job_id, for_job):
                await self._preempt(job_id, for_job)
            case Grow(_, added) if placed is not None:
                await self._resize(placed, merged(placed.allocation, added))
            case Shrink(_, removed, _) if placed is not None:
                leaving = merged(placed.leaving, removed)
                await self._resize(placed, merged(placed.allocation, leaving, -1))

    async def _begin(self, known: KnownJob, allocation: Allocation) -> None:
        job_id = known.job.id
        running = self.following.running.values()
        shares = self.cluster.shares(allocation, needs_of(known.resolved), running)
        try:
            attempt = await self._attempts.record(known, shares)
        except (StateError, LookupError):  # stopped, held or removed a moment ago
            await self.refresh({job_id})
            return
        started_s = attempt.started_ms / 1000
        request = self.cluster.request(known)
        self.cluster.put(Placed(request=request, allocation=allocation, started_s=started_s))
        await self.refresh({job_id})  # it is staging now
        self.following.add(self.cluster.known[job_id], attempt)

    async def _preempt(self, job_id: int, for_job: int) -> None:
        def work(connection: sa.Connection) -> None:
            if need_job(connection, job_id).wanted is None:
                text = f"gives way to job {for_job}"
                change_job(connection, job_id, wanted="preempt", message=text)

        await self._attempts.write(work)
        await self.refresh({job_id})

    async def _resize(self, placed: Placed, allocation: Allocation) -> None:
        """Have an elastic job go on with other workers; it holds what it had until those that leave have left."""
        running = self.following.running.get(placed.request.id)
        if running is None or running.task is not None or running.known.job.state != "running":
            return  # asked for again by the next decision
        before, others = running.attempt.shares, self.following.running.values()
        shares = self.cluster.shares(allocation, needs_of(running.known.resolved), others, before)
        held = held_meanwhile(before, shares)
        try:
            await self._attempts.resize(running, shares, keep=held)
        except UsageError as error:  # it has just ended, or lost its launcher
            _log.warning("job %s: %s", running.id, error)
            self.cluster.put(replace(placed, moved_s=now_s()))
            return
        running.target = shares
        leaving = merged(allocation_of(held), allocation, -1)
        self.cluster.put(replace(placed, allocation=allocation_of(held), leaving=leaving, moved_s=now_s()))

    def _resized(self, running: RunningAttempt) -> None:
        """Note that a job has the size it was told to have."""
        placed = self.scheduler.placed.get(running.id)
        if placed is not None:
            allocation = allocation_of(running.attempt.shares)
            self.cluster.put(replace(placed, allocation=allocation, leaving=()))

    async def _hold_to_limits(self) -> None:
        """Shrink elastic jobs that a user scaled to fewer workers than they have."""
        for placed in list(self.scheduler.placed.values()):
            surplus = placed.workers - placed.request.max_workers
            if surplus > 0 and not placed.leaving:
                removed = loosest(placed.staying, surplus)
                await self._resize(placed, merged(placed.allocation, removed, -1))

    def shares_of(self, job_id: int) -> tuple[AttemptShare, ...]:
        """Return what a running job holds."""
        running = self.following.running.get(job_id)
        return running.attempt.shares if running is not None else ()
