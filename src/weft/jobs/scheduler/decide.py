"""The decision: which jobs start, grow, shrink or pause now.

    decide(state) -> Decision

is pure: the same state gives the same actions. `Scheduler` keeps the same state in an index that is updated event by
event, so that a decision after one event does not look at every job; `decide` builds that index and asks it.

One decision goes through the waiting jobs in the order of their scores. A job that fits starts. For one that does not,
running jobs give way if they may; the first for which they may not reserves hosts, and jobs behind it start only where
they do not delay it. What is left then goes to elastic jobs, new ones first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from weft.jobs.scheduler.capacity import FreeCapacity, HostTable, vector
from weft.jobs.scheduler.model import (
    Action,
    Allocation,
    ClusterState,
    Grow,
    HostCapacity,
    JobRequest,
    Placed,
    Policy,
    Start,
    merged,
    size,
)
from weft.jobs.scheduler.placement import extend, place, place_in
from weft.jobs.scheduler.preemption import GivingWay, leaving_of, with_room
from weft.jobs.scheduler.queue import Entry, Need, WaitingQueue
from weft.jobs.scheduler.reservation import Reservation, reserve


@dataclass(frozen=True)
class Decision:
    """The actions of one decision, and what explains why the other jobs wait."""

    actions: tuple[Action, ...]
    reservation: Reservation | None
    claims: dict[int, Allocation]  # jobs for which others give way, and where they will run
    over_quota: frozenset[int]  # jobs that were reached in the queue and held back by their user's quota


class Scheduler:
    """The state of a cluster, indexed for decisions; each method applies one event."""

    def __init__(self, hosts: Iterable[HostCapacity], policy: Policy) -> None:
        self.policy = policy
        self.queue = WaitingQueue(policy)
        self.placed: dict[int, Placed] = {}
        self.ends: list[
            tuple[float, float, int]
        ] = []  # latest end, start and id of the placed jobs, in this order
        self.usage: dict[str, float] = {}
        self.changed_s = float("-inf")
        self.set_hosts(hosts)

    def set_hosts(self, hosts: Iterable[HostCapacity]) -> None:
        """Replace the hosts; jobs keep what they hold."""
        self.table = HostTable(sorted(hosts, key=lambda host: host.name))
        self.free = FreeCapacity(self.table)
        self.held: dict[str, float] = {}  # users' dominant shares of the cluster now
        self.fits: dict[Need, bool] = {}  # whether a job of such a need fits into the empty cluster
        for holder in self.placed.values():
            self._hold(holder, 1)

    def add(self, job: JobRequest, now_s: float) -> None:
        self.queue.add(job)
        self.changed_s = now_s

    def remove(self, job_id: int, now_s: float) -> None:
        """Forget a job that was withdrawn or has ended."""
        if job_id in self.queue.jobs:
            self.queue.remove(job_id)
        holder = self.placed.pop(job_id, None)
        if holder is not None:
            self._forget(holder)
        self.changed_s = now_s

    def put(self, holder: Placed) -> None:
        """Record what a job holds now: it started, changed its size, or was told to."""
        if holder.request.id in self.queue.jobs:
            self.queue.remove(holder.request.id)
        before = self.placed.get(holder.request.id)
        if before is not None:
            self._forget(before)
        self.placed[holder.request.id] = holder
        insort(self.ends, (holder.end_s, holder.started_s, holder.request.id))
        self._hold(holder, 1)

    def _forget(self, holder: Placed) -> None:
        del self.ends[bisect_left(self.ends, (holder.end_s, holder.started_s, holder.request.id))]
        self._hold(holder, -1)

    def _hold(self, holder: Placed, sign: int) -> None:
        demand, user = holder.request.demand, holder.request.user
        (self.free.take if sign > 0 else self.free.give)(demand, holder.allocation)
        share = self.table.share(demand, size(holder.allocation))
        self.held[user] = max(0.0, self.held.get(user, 0.0) + sign * share)

    def can_ever_run(self, job: JobRequest) -> bool:
        """Return whether a job would fit if nothing else ran."""
        need = job.demand, job.min_workers, 0.0
        if need not in self.fits:
            slots = self.table.slots(job.demand, self.table.total)
            self.fits[need] = place_in(self.table, slots, job.min_workers) is not None
        return self.fits[need]

    def decide(self, now_s: float) -> Decision:
        """Return what to do now; nothing is changed by asking."""
        return _Pass(self, now_s).run()


def decide(state: ClusterState) -> Decision:
    """Return what to do in a state."""
    scheduler = Scheduler(state.hosts, state.policy)
    for holder in state.placed:
        scheduler.put(holder)
    scheduler.queue.extend(state.waiting)
    scheduler.usage = dict(state.usage)
    scheduler.changed_s = state.changed_s
    return scheduler.decide(state.now_s)


# Score with its sign changed, so that the best is the smallest; job id; the group of the job; its place there.
Candidate = tuple[float, int, list[Entry], int]
# The best candidate's score and job id; the candidates of one need, as a heap.
NeedHeap = tuple[float, int, list[Candidate]]


class _Pass:
    """One decision while it is being made."""

    def __init__(self, scheduler: Scheduler, now_s: float) -> None:
        self.scheduler, self.policy, self.now_s = scheduler, scheduler.policy, now_s
        self.placed = scheduler.placed
        self.free = scheduler.free.copy()
        self.soon = scheduler.free.copy()  # once all who were told to go have gone
        for holder in self.placed.values():
            if holder.leaving or holder.pausing:
                self.soon.give(holder.request.demand, leaving_of(holder))
        self.held = dict(scheduler.held)
        self.starts: dict[int, tuple[JobRequest, Allocation]] = {}
        self.others: list[Action] = []
        self.claims: dict[int, Allocation] = {}
        self.over_quota: set[int] = set()
        self.reservation: Reservation | None = None
        self.giving_way: GivingWay | None = None
        self.tries = self.policy.preempt_tries if self.policy.preempt else 0

    def run(self) -> Decision:
        needs = self._needs()
        heapq.heapify(needs)
        while needs:
            candidates = needs[0][2]
            outcome = self._consider_best(candidates)
            if outcome == "stop":
                break
            if outcome == "next" and candidates:
                heapq.heapreplace(needs, (candidates[0][0], candidates[0][1], candidates))
            else:
                heapq.heappop(needs)
        self._grow_starts()
        grows = self._grow_running()
        starts = [Start(job_id, allocation) for job_id, (_, allocation) in self.starts.items()]
        actions = (*self.others, *starts, *grows)
        return Decision(actions, self.reservation, self.claims, frozenset(self.over_quota))

    # -- the order --------------------------------------------------------------------------------

    def _needs(self) -> list[NeedHeap]:
        """Return the candidates of all needs for which there may be room, and the best of the others."""
        fitting: list[NeedHeap] = []
        rest: list[NeedHeap] = []
        penalty = self._penalties()
        for (demand, workers, _), groups in self.scheduler.queue.needs.items():
            heap: list[Candidate] = [(g[0][0] + penalty[user], g[0][1], g, 0) for user, g in groups.items()]
            heapq.heapify(heap)
            room = self.free.room(demand) >= workers
            (fitting if room else rest).append((heap[0][0], heap[0][1], heap))
        for entry in self.scheduler.queue.due(self.now_s):
            fitting.append((entry[0] + self._penalty(entry[2].user), entry[1], [self._candidate([entry])]))
        return fitting + (heapq.nsmallest(max(1, self.tries), rest) if self.policy.backfill else rest)

    def _penalties(self) -> dict[str, float]:
        users = {user for groups in self.scheduler.queue.needs.values() for user in groups}
        return {user: self._penalty(user) for user in users}

    def _candidate(self, group: list[Entry], position: int = 0) -> Candidate:
        negated, job_id, job = group[position]
        return negated + self._penalty(job.user), job_id, group, position

    def _consider_best(self, candidates: list[Candidate]) -> Literal["next", "none", "stop"]:
        """Look at the best job of a need; "none": there is no room for any job of it."""
        score, job_id, group, position = candidates[0]
        job = group[position][2]
        current = group[position][0] + self._penalty(job.user)
        if current > score:  # the user has got something since: others may come first now
            heapq.heapreplace(candidates, (current, job_id, group, position))
            return "next"
        if not self.scheduler.can_ever_run(job):
            return "none"
        if self._exceeds_quota(job):
            self.over_quota.add(job.id)
            heapq.heappop(candidates)
            return "next"
        if not self._start(job) and not self._claim(job):
            if self.reservation is None:
                self.reservation = reserve(
                    job, self.soon, (self.placed[job_id] for _, _, job_id in self.scheduler.ends)
                )
            return "none" if self.policy.backfill else "stop"
        if position + 1 < len(group):
            heapq.heapreplace(candidates, self._candidate(group, position + 1))
        else:
            heapq.heappop(candidates)
        return "next"

    def _penalty(self, user: str) -> float:
        return self.policy.share_points * self._share(user)

    def _share(self, user: str) -> float:
        used = self.scheduler.usage.get(user, 0.0) + self.held.get(user, 0.0)
        return used / self.policy.weights.get(user, 1.0)

    # -- one job ----------------------------------------------------------------------------------

    def _find(self, job: JobRequest) -> Allocation | None:
        """Return a place for a job that delays no reservation."""
        if self.reservation is None or self.now_s + job.time_limit_s <= self.reservation.start_s < np.inf:
            return place(self.free, job.demand, job.min_workers)
        slots = self.free.slots(job.demand).copy()
        for host in self.reservation.hosts:
            slots[self.free.table.number[host]] = 0
        return place_in(self.free.table, slots, job.min_workers)

    def _start(self, job: JobRequest) -> bool:
        """Start a job if there is room that it may take."""
        found = self._find(job)
        if found is not None:
            self.starts[job.id] = job, found
            self._take(job, found)
        return found is not None

    def _take(self, job: JobRequest, allocation: Allocation) -> None:
        self.free.take(job.demand, allocation)
        self.soon.take(job.demand, allocation)
        share = self.free.table.share(job.demand, size(allocation))
        self.held[job.user] = self.held.get(job.user, 0.0) + share

    def _claim(self, job: JobRequest) -> bool:
        """Keep what others are leaving for a job, or ask others to leave; return whether that will do."""
        found = place(self.soon, job.demand, job.min_workers)
        if found is None:
            if self.tries <= 0:
                return False
            self.tries -= 1
            if self.giving_way is None:
                self.giving_way = GivingWay(self.placed, self.policy, self.now_s, self._share)
            room = self.giving_way.make_room(job, self.soon, self.placed)
            if room is None:
                return False
            found = room.allocation
            self.others += [*room.shrinks, *room.pauses]
            before, self.placed = self.placed, with_room(self.placed, room)
            for victim in {*(s.job for s in room.shrinks), *(p.job for p in room.pauses)}:
                gone = merged(leaving_of(self.placed[victim]), leaving_of(before[victim]), -1)
                self.soon.give(before[victim].request.demand, gone)
        self.claims[job.id] = found
        self.soon.take(job.demand, found)
        self.free.limit(self.soon, found)
        self.held[job.user] = self.held.get(job.user, 0.0) + self.free.table.share(job.demand, size(found))
        return True

    def _exceeds_quota(self, job: JobRequest) -> bool:
        quota = self.policy.quotas.get(job.user)
        if quota is None:
            return False
        held = np.zeros(3)
        for holder in self.placed.values():
            if holder.request.user == job.user:
                held += size(holder.allocation) * np.array(vector(holder.request.demand.per_worker))
        for other, allocation in self.starts.values():
            if other.user == job.user:
                held += size(allocation) * np.array(vector(other.demand.per_worker))
        wanted = held + job.min_workers * np.array(vector(job.demand.per_worker))
        return bool((wanted > np.array(vector(quota)) + 1e-9).any())

    # -- growth -----------------------------------------------------------------------------------

    def _grow_starts(self) -> None:
        """Give new elastic jobs what is left, in equal parts."""
        if self.reservation is not None:
            self.free.close(self.reservation.hosts)
        growing = [(job, held) for job, held in self.starts.values() if job.elastic]
        for index, (job, held) in enumerate(growing):
            added = self._more(job, held, len(growing) - index)
            if added:
                self._take(job, added)
                self.starts[job.id] = job, merged(held, added)

    def _grow_running(self) -> list[Grow]:
        """Let running elastic jobs grow into what has been idle for a while."""
        if self.now_s - self.scheduler.changed_s < self.policy.idle_s:
            return []
        growing = sorted(
            (h for h in self.placed.values() if self._may_grow(h) and self.free.room(h.request.demand)),
            key=lambda p: (-p.request.priority, self._share(p.request.user), p.request.id),
        )
        grows = []
        for index, holder in enumerate(growing):
            added = self._more(holder.request, holder.allocation, len(growing) - index)
            if added:
                self._take(holder.request, added)
                grows.append(Grow(holder.request.id, added))
        return grows

    def _may_grow(self, holder: Placed) -> bool:
        settled = self.now_s - holder.moved_s >= self.policy.settle_s
        return settled and not holder.leaving and 0 < holder.workers < holder.request.max_workers

    def _more(self, job: JobRequest, held: Allocation, sharers: int) -> Allocation:
        room = self.free.room(job.demand)
        wanted = min(job.max_workers - size(held), -(-room // sharers))
        quota = self.policy.quotas.get(job.user)
        while wanted > 0 and quota is not None:
            if not self._exceeds_quota(replace(job, min_workers=wanted)):
                break
            wanted -= 1
        return extend(self.free, job.demand, held, wanted) if wanted > 0 else ()
