"""The dispatcher: the loop that decides which jobs run, has it done, and notices ends.

It looks at the store's events, so that it hears of changes that any service on the same database made. Only the holder
of the lease decides; the others wait to take over. What it knows is an index of the store and can be built anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from weft.errors import WeftError
from weft.jobs.lifecycle import ACTIVE, ENDED, WAITING, StateError
from weft.jobs.scheduler.decide import Decision, Scheduler
from weft.jobs.scheduler.explain import Explanations, Reason
from weft.jobs.scheduler.model import (
    Action,
    Grow,
    JobRequest,
    Pause,
    Placed,
    Resources,
    Shrink,
    Start,
    merged,
)
from weft.jobs.service.attempts import Attempts, RunningAttempt
from weft.jobs.service.command import is_elastic
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.index import (
    KnownJob,
    known_job,
    needs_of,
    now_s,
    placed_of,
    request_of,
    without_avoiding,
)
from weft.jobs.service.keepers import KeeperProcess, Keepers
from weft.jobs.service.lease import LeaseLost, give_up, new_holder, take
from weft.jobs.service.processes import boot_id
from weft.jobs.service.shares import share_out
from weft.jobs.store.attempts import AttemptShare, StoredAttempt, attempts_of, open_attempts
from weft.jobs.store.database import Database
from weft.jobs.store.events import events_after, newest_event
from weft.jobs.store.hosts import StoredHost, list_hosts
from weft.jobs.store.jobs import change_job, dependencies_of, jobs_in, need_job, waiting_for

TURN_S = 0.1  # between two looks while a job starts or changes its size
ENDING = ("pause", "preempt")
_log = logging.getLogger(__name__)


class Dispatcher:
    """One service's part in the scheduling: it decides while it holds the lease."""

    def __init__(
        self, config: ServiceConfig, database: Database, attempts: Attempts, keepers: Keepers, host: str
    ) -> None:
        self._config, self._database, self._attempts, self._keepers = config, database, attempts, keepers
        self._host = host
        self._holder = new_holder()
        self._woken = asyncio.Event()
        self._renew_at = 0.0
        self._last_event = 0
        self._changed = True
        self.chores: list[Callable[[Dispatcher, float], object]] = []
        self.trouble = ""
        self._reset()

    def _reset(self) -> None:
        self.leading = False
        self.hosts: dict[str, StoredHost] = {}
        self.scheduler = Scheduler((), self._config.policy)
        self.known: dict[int, KnownJob] = {}
        self.running: dict[int, RunningAttempt] = {}
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
                busy = any(
                    running.target or running.known.job.state == "starting"
                    for running in self.running.values()
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), TURN_S if busy else self._config.tick_s)
        finally:
            await self._close()

    async def _try_turn(self) -> None:
        self._woken.clear()
        try:
            await self._turn()
            self.trouble = ""
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
        await self._follow()
        for chore in self.chores:
            result = chore(self, now)
            if asyncio.iscoroutine(result):
                await result
        await self._decide()

    async def _stand_down(self) -> None:
        """Forget everything: somebody else decides now, or the store must be read again."""
        tasks = [running.task for running in self.running.values() if running.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keepers.close()
        self._reset()

    async def _close(self) -> None:
        await self._stand_down()
        with suppress(sa.exc.SQLAlchemyError, OSError):
            await self._database.write(lambda connection: give_up(connection, self._holder))

    # -- what the store knows ---------------------------------------------------------------------

    async def _load(self) -> None:
        """Build the index, and find the keepers of jobs that were started before."""
        self._keepers.close()
        self._reset()
        self._last_event = await self._database.read(newest_event)
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

    async def load_hosts(self) -> None:
        """Read the hosts again."""
        self.hosts = {host.name: host for host in await self._database.read(list_hosts)}
        self.scheduler.set_hosts(host.capacity for host in self.hosts.values())
        self._changed = True

    async def _sync(self) -> None:
        """Hear of changes that any service made."""
        while True:
            events = await self._database.read(
                partial(events_after, last_id=self._last_event, topics=("jobs", "hosts"))
            )
            if not events:
                return
            self._last_event = events[-1].id
            if any(event.topic == "hosts" for event in events):
                await self.load_hosts()
            ids = {
                int(event.data["job"]) for event in events if event.topic == "jobs" and "job" in event.data
            }
            await self._refresh(ids)

    async def _refresh(self, ids: set[int]) -> None:
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
        job = known.job
        self._changed = True
        running = self.running.get(job.id)
        if running is not None:
            running.known = known
            if job.state in ACTIVE:
                placed = self.scheduler.placed.get(job.id)
                if placed is not None:
                    pausing = job.wanted in ENDING
                    self.scheduler.put(replace(placed, request=self._request(known), pausing=pausing))
                self.known[job.id] = known
                return
            if running.task is not None:  # it is being ended; what follows is looked at then
                return
        if job.state in ENDED:
            self._forget(job.id)
            return
        self.known[job.id] = known
        if job.state in ("queued", "held"):
            self.running.pop(job.id, None)
            self.scheduler.remove(job.id, now_s())
            self.scheduler.add(self._request(known), now_s())
        elif job.state == "paused":
            self.running.pop(job.id, None)
            self.scheduler.remove(job.id, now_s())
        elif attempt is not None:
            self._follow_again(known, attempt)

    def _request(self, known: KnownJob) -> JobRequest:
        request = request_of(known)
        if request.demand.avoid and not self.scheduler.can_ever_run(request):
            return without_avoiding(request)
        return request

    def _forget(self, job_id: int) -> None:
        self.known.pop(job_id, None)
        self.running.pop(job_id, None)
        self.scheduler.remove(job_id, now_s())
        self._changed = True

    def _follow_again(self, known: KnownJob, attempt: StoredAttempt) -> None:
        """Follow an attempt that an earlier service started."""
        running = self.running[known.job.id] = RunningAttempt(known, attempt)
        if attempt.ended_ms is None:
            self.scheduler.put(placed_of(self._request(known), attempt, pausing=known.job.wanted in ENDING))
        if known.job.state == "storing":
            self._take_step(running, self._attempts.store(running))
        elif known.job.state == "staging":
            self._take_step(running, self._start(running))
        elif attempt.keeper_pid is None:
            self._take_step(running, self._start_keeper(running))
        else:
            self._attach(running)

    def _attach(self, running: RunningAttempt) -> None:
        attempt = running.attempt
        keeper = KeeperProcess(attempt.keeper_pid or 0, attempt.keeper_started or 0)
        here = attempt.boot_id == boot_id()
        if not here or not self._keepers.watch(running.id, keeper):
            running.ended = True
            self.wake()

    # -- running jobs -----------------------------------------------------------------------------

    def keeper_ended(self, job_id: int, code: int | None) -> None:
        """Note that a job's keeper is gone; the next turn sees to it."""
        running = self.running.get(job_id)
        if running is not None:
            running.ended, running.code = True, code
        self.wake()

    async def _follow(self) -> None:
        """See to every job that has been started."""
        for running in list(self.running.values()):
            if running.task is not None:
                continue
            state = running.known.job.state
            if running.ended:
                self._take_step(running, self._end(running))
            elif state == "starting" and self._attempts.has_begun(running):
                await self._attempts.say_running(running)
                await self._refresh({running.id})
            if state in ("starting", "running") and not running.ended:
                await self._watch(running)

    async def _watch(self, running: RunningAttempt) -> None:
        """Ask a job to end that shall, and hold it to its time."""
        job, limit_s = running.known.job, running.known.resolved.time_limit_s
        if (
            job.wanted is None
            and limit_s is not None
            and now_s() > running.attempt.started_ms / 1000 + limit_s
        ):
            await self._attempts.write(lambda c: change_job(c, job.id, wanted="time-out"))
            await self._refresh({job.id})
        if running.known.job.wanted is not None:
            await self._attempts.ask(running)

    def _take_step(self, running: RunningAttempt, step: Coroutine[Any, Any, None]) -> None:
        """Do something slow for a job while the others go on."""
        task = asyncio.create_task(self._guard(running, step))
        running.task = task
        task.add_done_callback(lambda _: self._step_taken(running))

    def _step_taken(self, running: RunningAttempt) -> None:
        running.task = None
        self.wake()

    async def _guard(self, running: RunningAttempt, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except LeaseLost:
            self._renew_at = 0.0
        except (sa.exc.SQLAlchemyError, OSError) as error:
            self.trouble = " ".join(str(getattr(error, "orig", None) or error).split())
            _log.error("job %s: %s", running.id, self.trouble)
            await asyncio.sleep(self._config.tick_s)
        except Exception:
            _log.exception("job %s", running.id)
            await asyncio.sleep(self._config.tick_s)

    async def _start(self, running: RunningAttempt) -> None:
        """Stage and start an attempt that is recorded."""
        try:
            await self._attempts.stage(running)
        except OSError as error:
            await self._attempts.give_back(running, f"its files could not be written: {error}", 30.0)
        except WeftError as error:
            if isinstance(error, LeaseLost):
                raise
            await self._attempts.refuse(running, str(error))
        await self._refresh({running.id})
        if running.known.job.state == "starting":
            await self._start_keeper(running)
        else:
            self._let_go(running)

    async def _start_keeper(self, running: RunningAttempt) -> None:
        try:
            keeper = await self._attempts.start(running)
        except WeftError as error:
            if isinstance(error, LeaseLost):
                raise
            await self._attempts.refuse(running, str(error))
            self._let_go(running)
            await self._refresh({running.id})
            return
        if keeper is None:
            await asyncio.sleep(TURN_S)
            await self._start_keeper(running)
        elif not self._keepers.watch(running.id, keeper):
            running.ended, running.code = True, self._keepers.code_of(keeper)

    def _let_go(self, running: RunningAttempt) -> None:
        self.running.pop(running.id, None)
        self.scheduler.remove(running.id, now_s())

    async def _end(self, running: RunningAttempt) -> None:
        """Judge an attempt whose keeper is gone; an elastic run that goes on gets another."""
        if await self._adopted(running):
            return
        following = await self._attempts.finish(running)
        self.scheduler.remove(running.id, now_s())
        if following.state == "storing":
            await self._attempts.store(running)
        self.running.pop(running.id, None)
        await self._refresh({running.id})

    async def _adopted(self, running: RunningAttempt) -> bool:
        known, folder = running.known, self._attempts.folder(running.attempt)
        if not is_elastic(known.resolved) or (folder / "run" / "outcome.json").exists():
            return False
        if not (folder / "run" / "elastic" / "control.json").exists() or running.attempt.asked == "kill":
            return False
        keeper = await self._attempts.adopt(running)
        if keeper is None:
            return False
        running.ended, running.code = False, None
        if not self._keepers.watch(running.id, keeper):
            running.ended, running.code = True, self._keepers.code_of(keeper)
        return True

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
            await self._refresh({job_id})
            return
        request = self.scheduler.queue.jobs.get(job_id) or self._request(known)
        self.scheduler.put(
            Placed(request=request, allocation=allocation, started_s=attempt.started_ms / 1000)
        )
        running = self.running[job_id] = RunningAttempt(known, attempt)
        self._take_step(running, self._start(running))

    def _shares(
        self,
        allocation: tuple[tuple[str, int], ...],
        per_worker: Resources,
        before: Sequence[AttemptShare] = (),
    ) -> tuple[AttemptShare, ...]:
        """Return the processors and accelerators for a job, beside those of the others."""
        holdings: dict[str, list[tuple[AttemptShare, Resources]]] = {}
        own = {share.host: share for share in before}
        for running in self.running.values():
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
        await self._refresh({job_id})

    async def _resize(self, placed: Placed, allocation: tuple[tuple[str, int], ...]) -> None:
        raise NotImplementedError

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
        running = self.running.get(job_id)
        return running.attempt.shares if running is not None else ()
