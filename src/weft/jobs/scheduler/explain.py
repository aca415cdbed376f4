"""The reasons why jobs wait: in a sentence, with their place in the queue and the earliest time they may start."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from weft.jobs.scheduler.capacity import vector
from weft.jobs.scheduler.decide import Decision, Scheduler
from weft.jobs.scheduler.model import NO_LIMIT_S, JobRequest, Start, Why
from weft.jobs.scheduler.placement import place
from weft.jobs.scheduler.queue import standing
from weft.text import plural


@dataclass(frozen=True)
class Reason:
    """The reason why one job waits."""

    why: Why
    text: str
    place: int | None  # 1: next; None: not in the queue proper
    earliest_s: float | None  # None: not known


class Explanations:
    """The reasons of all waiting jobs after one decision; the order and the estimates are made on first use."""

    def __init__(self, scheduler: Scheduler, decision: Decision, now_s: float) -> None:
        self._scheduler, self._decision, self._now_s = scheduler, decision, now_s
        self._started = {action.job for action in decision.actions if isinstance(action, Start)}
        self._places: dict[int, int] | None = None
        self._estimates: dict[int, float] | None = None

    def reason(self, job_id: int) -> Reason:
        """Return why a job waits."""
        job = self._scheduler.queue.jobs[job_id]
        if job_id in self._started:  # it is asked for between the decision and what carries it out
            return Reason("reserved", "it starts now", 1, self._now_s)
        why, text = self._why(job)
        if why in ("held", "dependency", "not yet", "never fits"):
            return Reason(why, text, None, job.not_before_s if why == "not yet" else None)
        return Reason(why, text, self.places()[job_id], self._earliest(job))

    def _why(self, job: JobRequest) -> tuple[Why, str]:
        reservation = self._decision.reservation
        if job.held:
            return "held", "held; release it to let it start"
        if job.blocked_by:
            return "dependency", "waits for " + ", ".join(f"job {other}" for other in job.blocked_by)
        if job.not_before_s > self._now_s:
            return "not yet", f"starts in {job.not_before_s - self._now_s:.0f} s at the earliest"
        if not self._scheduler.can_ever_run(job):
            return "never fits", never_fits_text(self._scheduler, job)
        if job.id in self._decision.over_quota:
            return "quota", f"{job.user} has all that the quota allows"
        if job.id in self._decision.claims:
            return "giving way", "other jobs make room for it"
        if reservation is not None and reservation.job == job.id:
            return "reserved", "next: hosts are kept for it as they become free"
        if place(self._scheduler.free, job.demand, job.min_workers) is None:
            return "resources", "no hosts are free that have what it needs"
        return "priority", "others are before it"

    def places(self) -> dict[int, int]:
        """Return the place of every job that may start, 1 for the next."""
        if self._places is None:
            self._places = {job.id: index for index, job in enumerate(self._order(), 1)}
        return self._places

    def _order(self) -> list[JobRequest]:
        scheduler, policy = self._scheduler, self._scheduler.policy
        share = {
            user: (scheduler.usage.get(user, 0.0) + scheduler.held.get(user, 0.0))
            / policy.weights.get(user, 1.0)
            for user in {job.user for job in scheduler.queue.jobs.values()}
        }
        able = [
            job
            for job in scheduler.queue.jobs.values()
            if job.id not in self._started and self._in_queue(job)
        ]
        return sorted(
            able, key=lambda job: (policy.share_points * share[job.user] - standing(policy, job), job.id)
        )

    def _in_queue(self, job: JobRequest) -> bool:
        waits = job.held or job.blocked_by or job.not_before_s > self._now_s
        return not waits and self._scheduler.can_ever_run(job)

    def _earliest(self, job: JobRequest) -> float | None:
        reservation = self._decision.reservation
        if reservation is not None and reservation.job == job.id:
            return reservation.start_s if reservation.start_s < NO_LIMIT_S else None
        if self._estimates is None:
            self._estimates = self._simulate()
        found = self._estimates[job.id]
        return found if found < NO_LIMIT_S else None

    def _simulate(self) -> dict[int, float]:
        """Return when each job starts if the cluster were one large host and jobs took all of their time limits."""
        free = self._scheduler.table.total.sum(axis=1)
        ends: list[tuple[float, int, tuple[float, ...]]] = []
        for holder in self._scheduler.placed.values():
            used = holder.workers * np.array(vector(holder.request.demand.per_worker))
            free = free - used
            heapq.heappush(ends, (holder.end_s, holder.request.id, tuple(map(float, used))))
        cpus, memory, gpus = map(float, free)
        now, starts = self._now_s, {}
        for job in self._order():
            need = tuple(job.min_workers * amount for amount in vector(job.demand.per_worker))
            while (cpus < need[0] or memory < need[1] or gpus < need[2]) and ends:
                end, _, freed = heapq.heappop(ends)
                now = max(now, end)
                cpus, memory, gpus = cpus + freed[0], memory + freed[1], gpus + freed[2]
            starts[job.id] = now
            cpus, memory, gpus = cpus - need[0], memory - need[1], gpus - need[2]
            heapq.heappush(ends, (now + job.time_limit_s, job.id, need))
        return starts


def never_fits_text(scheduler: Scheduler, job: JobRequest) -> str:
    """Return what a job asks for and what the cluster has at most."""
    table = scheduler.table
    usable = table.usable(job.demand)
    if not usable.any():
        wanted = ", ".join(sorted(job.demand.labels)) or "any label"
        return f"no host may take it: none is open with {wanted}, outside of those it must avoid"
    per_worker, most = vector(job.demand.per_worker), table.total[:, usable].max(axis=1)
    for name, need, largest in zip(("cpus", "bytes of memory", "gpus"), per_worker, most, strict=True):
        if need > largest:
            return f"a worker needs {need:g} {name}, the largest host has {largest:g}"
    room = int(table.slots(job.demand, table.total).sum())
    return f"it needs {plural(job.min_workers, 'worker')} at least, the hosts have room for {room}"
