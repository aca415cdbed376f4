"""The dispatcher: the loop that decides which jobs run, has it done, and notices ends.

It looks at the store's events, so that it hears of changes that any service on the same database made. Only the holder
of the lease decides; the others wait to take over. What it knows is an index of the store and can be built anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.lifecycle import ACTIVE, ENDED, WAITING, StateError
from weft.jobs.reports.tailer import Tailer
from weft.jobs.scheduler.decide import Decision, Scheduler
from weft.jobs.scheduler.explain import Explanations, Reason
from weft.jobs.scheduler.model import (
    Action,
    Allocation,
    Grow,
    JobRequest,
    Pause,
    Placed,
    Resources,
    Shrink,
    Start,
    merged,
)
from weft.jobs.scheduler.preemption import loosest
from weft.jobs.service.attempts.following import Following
from weft.jobs.service.attempts.keepers import Keepers
from weft.jobs.service.attempts.shares import share_out
from weft.jobs.service.attempts.steps import Attempts, RunningAttempt, held_meanwhile
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.index import (
    KnownJob,
    allocation_of,
    known_job,
    needs_of,
    now_s,
    placed_of,
    request_of,
    without_avoiding,
)
from weft.jobs.service.lease import LeaseLost, give_up, new_holder, take
from weft.jobs.service.usage import policy_with_quotas
from weft.jobs.store.attempts import AttemptShare, StoredAttempt, attempts_of, open_attempts
from weft.jobs.store.database import Database
from weft.jobs.store.events import events_after, newest_event
from weft.jobs.store.hosts import StoredHost, list_hosts
from weft.jobs.store.jobs import change_job, dependencies_of, jobs_in, need_job, waiting_for

TURN_S = 0.1  # between two looks while a job starts or changes its size
TOPICS = ("jobs", "hosts", "quotas")
GIVING_WAY = ("pause", "preempt", "stop", "time-out")  # what is wanted of jobs that are about to leave
_log = logging.getLogger(__name__)


class Dispatcher:
    """One service's part in the scheduling: it decides while it holds the lease."""

    def __init__(
        self, config: ServiceConfig, database: Database, attempts: Attempts, keepers: Keepers, tailer: Tailer
    ) -> None:
        self._config, self._database, self._attempts = config, database, attempts
        self._holder = new_holder()
        self._woken = asyncio.Event()
        self._renew_at = 0.0
        self._last_event = 0
        self._changed = True
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
        self.hosts: dict[str, StoredHost] = {}
        self.scheduler = Scheduler((), self._config.policy)
        self.known: dict[int, KnownJob] = {}
        self._decision: tuple[Decision, float] | None = None

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

    async def _turn(self) -> None:
        now = now_s()
        if now >= self._renew_at:
            lease_ms = round(self._config.lease_s * 1000)
            lease = await self._database.write(lambda c: take(c, self._holder, lease_ms))
            self._renew_at = now + self._config.lease_s / 4
            if lease is None:
                if self.leading:
                    await self._stand_down()
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

    async def _stand_down(self) -> None:
        """Forget everything: somebody else decides now, or the store must be read again."""
        await self.following.close()
        self._reset()

    async def _close(self) -> None:
        await self._stand_down()
        with suppress(sa.exc.SQLAlchemyError, OSError):
            await self._database.write(lambda connection: give_up(connection, self._holder))

    # -- what the store knows ---------------------------------------------------------------------

    async def _load(self) -> None:
        """Build the index, and find the keepers of jobs that were started before."""
        await self.following.close()
        self._reset()
        self._last_event = await self._database.read(newest_event)
        await self._load_policy()
        await self.load_hosts()
        found = await self._database.read(lambda c: jobs_in(c, states=WAITING | ACTIVE))
        after = await self._database.read(dependencies_of)
        attempts = {attempt.job_id: attempt for attempt in await self._database.read(open_attempts)}
        self.leading = True
        for job, spec in found:
            if job.kind == "run":
                self._take_in(known_job(job, spec, after.get(job.id, {})), attempts.get(job.id))
        for known in [known for known in self.known.values() if known.job.state == "storing"]:
            stored = await self._database.read(partial(attempts_of, job_id=known.job.id))
            self._take_in(known, stored[-1])
        self._changed = True

    async def _load_policy(self) -> None:
        policy = self._config.policy
        self.scheduler.policy = await self._database.read(lambda c: policy_with_quotas(c, policy))
        self._changed = True

    async def load_hosts(self) -> None:
        """Read the hosts again."""
        self.hosts = {host.name: host for host in await self._database.read(list_hosts)}
        self.scheduler.set_hosts(host.capacity for host in self.hosts.values())
        self._attempts.may_spread = len(self.hosts) > 1
        self._changed = True

    async def _sync(self) -> None:
        """Hear of changes that any service made."""
        while True:
            events = await self._database.read(partial(events_after, last_id=self._last_event, topics=TOPICS))
            if not events:
                return
            self._last_event = events[-1].id
            topics = {event.topic for event in events}
            if "hosts" in topics:
                await self.load_hosts()
            if "quotas" in topics:
                await self._load_policy()
            ids = {
                int(event.data["job"]) for event in events if event.topic == "jobs" and "job" in event.data
            }
            await self.refresh(ids)

    async def refresh(self, ids: set[int]) -> None:
        """Read some jobs again, and those that wait for them."""
        if not ids:
            return
        for job_id in tuple(ids):
            ids |= set(await self._database.read(partial(waiting_for, job_id=job_id)))
        wanted = sorted(ids)
        found = await self._database.read(lambda c: jobs_in(c, ids=wanted))
        after = await self._database.read(lambda c: dependencies_of(c, wanted))
        for job, spec in found:
            if job.kind == "run":
                self._take_in(known_job(job, spec, after.get(job.id, {})))
        for job_id in ids - {job.id for job, _ in found}:
            self._forget(job_id)

    def _take_in(self, known: KnownJob, attempt: StoredAttempt | None = None) -> None:
        """Bring the index to what the store says of a job."""
        job, running = known.job, self.following.running.get(known.job.id)
        self._changed = True
        if running is not None:
            running.known = known
            if job.state in WAITING:  # its attempt is being ended; the job is read again when that is done
                return
        if job.state in ENDED:
            self._forget(job.id)
            return
        self.known[job.id] = known
        if job.state in WAITING:
            self.scheduler.remove(job.id, now_s())
            if job.state != "paused":
                self.scheduler.add(self._request(known), now_s())
        elif running is not None:
            self._update_placed(known)
        elif attempt is not None:
            running = self.following.add(known, attempt)
            if attempt.ended_ms is None:
                self._place_again(running)

    def _update_placed(self, known: KnownJob) -> None:
        """Take over what somebody changed about a job that runs."""
        placed = self.scheduler.placed.get(known.job.id)
        if placed is None:
            return
        request = self._request(known)
        moved_s = placed.moved_s
        if (
            request.max_workers > placed.request.max_workers
        ):  # scaled up by somebody, who does not want to wait
            moved_s = self.scheduler.changed_s = float("-inf")
        pausing = known.job.wanted in GIVING_WAY
        self.scheduler.put(replace(placed, request=request, pausing=pausing, moved_s=moved_s))

    def _place_again(self, running: RunningAttempt) -> None:
        """Note what a job holds that an earlier service started, and what it was told to give up."""
        request, pausing = self._request(running.known), running.known.job.wanted in GIVING_WAY
        placed = placed_of(request, running.attempt, pausing=pausing)
        running.target = self._attempts.target_of(running)
        if running.target is not None:
            leaving = merged(placed.allocation, allocation_of(running.target), -1)
            placed = replace(placed, leaving=leaving)
        self.scheduler.put(placed)

    def _request(self, known: KnownJob) -> JobRequest:
        request = request_of(known)
        if request.demand.avoid and not self.scheduler.can_ever_run(request):
            return without_avoiding(request)
        return request

    def _forget(self, job_id: int) -> None:
        self.known.pop(job_id, None)
        self.scheduler.remove(job_id, now_s())

    def _freed(self, job_id: int) -> None:
        """Note that a job holds nothing any more."""
        if job_id in self.scheduler.placed:
            self.scheduler.remove(job_id, now_s())
            self._changed = True

    # -- deciding ---------------------------------------------------------------------------------

    async def _decide(self) -> None:
        now = now_s()
        due = self._decision is None or now - self._decision[1] >= self._config.tick_s
        if not self._changed and not due:
            return
        self._changed = False
        decision = self.scheduler.decide(now)
        self._decision = decision, now
        for action in decision.actions:
            await self._carry_out(action)

    async def _carry_out(self, action: Action) -> None:
        match action:
            case Start(job_id, allocation):
                await self._begin(job_id, allocation)
            case Pause(job_id, for_job):
                await self._preempt(job_id, for_job)
            case Grow(job_id, added):
                placed = self.scheduler.placed[job_id]
                await self._resize(placed, merged(placed.allocation, added))
            case Shrink(job_id, removed, _):
                placed = self.scheduler.placed[job_id]
                leaving = merged(placed.leaving, removed)
                await self._resize(placed, merged(placed.allocation, leaving, -1))

    async def _begin(self, job_id: int, allocation: tuple[tuple[str, int], ...]) -> None:
        known = self.known[job_id]
        shares = self._shares(allocation, needs_of(known.resolved))
        try:
            attempt = await self._attempts.record(known, shares)
        except (StateError, LookupError):  # stopped, held or removed a moment ago
            await self.refresh({job_id})
            return
        request = self.scheduler.queue.jobs.get(job_id) or self._request(known)
        self.scheduler.put(
            Placed(request=request, allocation=allocation, started_s=attempt.started_ms / 1000)
        )
        await self.refresh({job_id})  # it is staging now
        self.following.add(self.known[job_id], attempt)

    def _shares(
        self,
        allocation: tuple[tuple[str, int], ...],
        per_worker: Resources,
        before: Sequence[AttemptShare] = (),
    ) -> tuple[AttemptShare, ...]:
        """Return the processors and accelerators for a job, beside those of the others."""
        holdings: dict[str, list[tuple[AttemptShare, Resources]]] = {}
        own = {share.host: share for share in before}
        for running in self.following.running.values():
            each = needs_of(running.known.resolved)
            for share in running.attempt.shares:
                if own.get(share.host) is not share:
                    holdings.setdefault(share.host, []).append((share, each))
        topologies = {name: host.topology for name, host in self.hosts.items() if host.topology is not None}
        return share_out(allocation, per_worker, topologies, holdings, before)

    async def _preempt(self, job_id: int, for_job: int) -> None:
        text = f"gives way to job {for_job}"
        await self._attempts.write(
            lambda c: (
                change_job(c, job_id, wanted="preempt", message=text)
                if need_job(c, job_id).wanted is None
                else None
            )
        )
        await self.refresh({job_id})

    async def _resize(self, placed: Placed, allocation: Allocation) -> None:
        """Have an elastic job go on with other workers; it holds what it had until those that leave have left."""
        running = self.following.running.get(placed.request.id)
        if running is None or running.task is not None or running.known.job.state != "running":
            return  # asked for again by the next decision
        before = running.attempt.shares
        shares = self._shares(allocation, needs_of(running.known.resolved), before)
        held = held_meanwhile(before, shares)
        try:
            await self._attempts.resize(running, shares, keep=held)
        except UsageError as error:  # it has just ended, or lost its launcher
            _log.warning("job %s: %s", running.id, error)
            self.scheduler.put(replace(placed, moved_s=now_s()))
            return
        running.target = shares
        leaving = merged(allocation_of(held), allocation, -1)
        self.scheduler.put(replace(placed, allocation=allocation_of(held), leaving=leaving, moved_s=now_s()))

    def _resized(self, running: RunningAttempt) -> None:
        """Note that a job has the size it was told to have."""
        placed = self.scheduler.placed.get(running.id)
        if placed is not None:
            allocation = allocation_of(running.attempt.shares)
            self.scheduler.put(replace(placed, allocation=allocation, leaving=()))
            self._changed = True

    async def _hold_to_limits(self) -> None:
        """Shrink elastic jobs that somebody scaled to fewer workers than they have."""
        for placed in list(self.scheduler.placed.values()):
            surplus = placed.workers - placed.request.max_workers
            if surplus > 0 and not placed.leaving:
                removed = loosest(placed.staying, surplus)
                await self._resize(placed, merged(placed.allocation, removed, -1))

    # -- answers ----------------------------------------------------------------------------------

    def explanations(self) -> Explanations | None:
        """Return why jobs wait, as of the last decision."""
        if self._decision is None:
            return None
        return Explanations(self.scheduler, *self._decision)

    def reason(self, job_id: int) -> Reason | None:
        """Return why a job waits; None if it does not."""
        known, found = self.known.get(job_id), self.explanations()
        if known is None or found is None or job_id not in self.scheduler.queue.jobs:
            return None
        lost = known.never_unblocked
        if lost and known.job.state != "held":
            named = ", ".join(f"job {other}" for other in lost)
            return Reason("dependency", f"{named} did not complete; retry it, or stop this one", None, None)
        return found.reason(job_id)

    def reasons(self) -> Mapping[int, Reason]:
        """Return why each waiting job waits."""
        found = {job_id: self.reason(job_id) for job_id in self.scheduler.queue.jobs}
        return {job_id: reason for job_id, reason in found.items() if reason is not None}

    def used(self) -> dict[str, Resources]:
        """Return what jobs hold of each host."""
        used: dict[str, Resources] = {}
        for placed in self.scheduler.placed.values():
            each = placed.request.demand.per_worker
            for host, workers in placed.allocation:
                before = used.get(host, Resources())
                used[host] = Resources(
                    before.cpus + workers * each.cpus,
                    before.memory_bytes + workers * each.memory_bytes,
                    before.gpus + workers * each.gpus,
                )
        return used

    def shares_of(self, job_id: int) -> tuple[AttemptShare, ...]:
        """Return what a running job holds."""
        running = self.following.running.get(job_id)
        return running.attempt.shares if running is not None else ()
