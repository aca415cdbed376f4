"""A simulated cluster: a trace of jobs played against a policy, to see how long jobs wait and how busy hosts are.

Events are arrivals, ends, and workers that have left; after each, the scheduler decides. A job is an amount of work: n
workers do `n ** SCALING` worker-seconds of it in a second. Shrinking costs the job a short pause. Pausing costs the
time to write a checkpoint, and the time to start again from it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from weft.jobs.scheduler.decide import Scheduler
from weft.jobs.scheduler.model import (
    Demand,
    Grow,
    HostCapacity,
    JobRequest,
    Pause,
    Placed,
    Policy,
    Resources,
    Shrink,
    Start,
    merged,
)

SCALING = 0.95  # how work done in a second grows with workers: 8 workers do 7.2 times the work of one
SHRINK_S = 2.0  # from being told until workers have left; the job stands still meanwhile
CHECKPOINT_S = 60.0  # from being told until a paused job has left its hosts
RESTART_S = 90.0  # from starting a paused job again until it is where it was
GROWTH_TICK_S = 60.0  # between decisions when nothing happens


def _speed(workers: int) -> float:
    """Return the work that workers do in a second."""
    return float(math.pow(workers, SCALING))


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace: what is asked for, and how much there is to do."""

    request: JobRequest
    work: float  # worker-seconds at one worker's speed

    def rigid(self, workers: int) -> TraceJob:
        """Return the same job with a fixed size."""
        return replace(self, request=replace(self.request, min_workers=workers, max_workers=workers))


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Waits, use and moves when a policy plays a trace."""

    jobs: int
    mean_wait_s: float  # from submission to the first start
    mean_urgent_wait_s: float  # of jobs with a priority above 80
    mean_turnaround_s: float  # from submission to the end
    use: float  # share of the accelerators that were held, from the first submission to the last
    shrinks: int
    pauses: int


@dataclass
class _Run:
    """One job of the simulation that has arrived."""

    job: TraceJob
    left: float  # work
    updated_s: float
    started_s: float | None = None
    idle_until_s: float = 0.0  # starting, or changing its size
    paused: bool = False
    version: int = field(default=0)  # of its end: an event of an older version is void

    def advance(self, now_s: float, workers: int) -> None:
        """Do the work of the time that has passed with a number of workers."""
        begin = max(self.updated_s, min(now_s, self.idle_until_s))
        self.left -= (now_s - begin) * _speed(workers)
        self.updated_s = now_s

    def end_s(self, workers: int) -> float:
        begin = max(self.updated_s, self.idle_until_s)
        return begin + max(0.0, self.left) / _speed(workers)


class Simulation:
    """One trace and one policy, played to the end."""

    def __init__(self, hosts: Sequence[HostCapacity], policy: Policy) -> None:
        self._scheduler = Scheduler(hosts, policy)
        self._total = sum(host.total.gpus for host in hosts)
        self._runs: dict[int, _Run] = {}
        self._events: list[tuple[float, int, str, int, int]] = []  # time, sequence, kind, job, version
        self._sequence = 0
        self._now_s = self._busy = self._counted_s = 0.0
        self._waits: list[tuple[int, float]] = []
        self._turnarounds: list[float] = []
        self._shrinks = self._pauses = 0

    def play(self, trace: Iterable[TraceJob]) -> SimulationResult:
        """Return what becomes of all jobs of a trace."""
        jobs = {job.request.id: job for job in trace}
        for job in jobs.values():
            self._at(job.request.submitted_s, "arrive", job.request.id)
        last_s = max(job.request.submitted_s for job in jobs.values())
        self._at(GROWTH_TICK_S, "tick", -1)
        while self._events:
            time_s, _, kind, job_id, version = heapq.heappop(self._events)
            self._count(time_s, last_s)
            self._now_s = time_s
            if kind == "tick":
                if len(self._turnarounds) < len(jobs):
                    self._at(time_s + GROWTH_TICK_S, "tick", -1)
            elif kind == "arrive":
                self._runs[job_id] = _Run(jobs[job_id], jobs[job_id].work, time_s)
                self._scheduler.add(jobs[job_id].request, time_s)
            elif version != self._runs[job_id].version:
                continue
            elif kind == "end":
                self._scheduler.remove(job_id, time_s)
                self._turnarounds.append(time_s - jobs[job_id].request.submitted_s)
            else:
                self._left(job_id)
            self._decide()
        urgent = [wait for priority, wait in self._waits if priority > 80]
        return SimulationResult(
            len(jobs),
            sum(wait for _, wait in self._waits) / len(self._waits),
            sum(urgent) / len(urgent) if urgent else 0.0,
            sum(self._turnarounds) / len(self._turnarounds),
            self._busy / (self._total * last_s),
            self._shrinks,
            self._pauses,
        )

    def _at(self, time_s: float, kind: str, job_id: int) -> None:
        version = self._runs[job_id].version if job_id in self._runs else 0
        self._sequence += 1
        heapq.heappush(self._events, (time_s, self._sequence, kind, job_id, version))

    def _count(self, until_s: float, last_s: float) -> None:
        """Add up the accelerators that were held since the last event."""
        end_s = min(until_s, last_s)
        if end_s > self._counted_s:
            free = float(self._scheduler.free.free[2].sum())
            self._busy += (self._total - free) * (end_s - self._counted_s)
            self._counted_s = end_s

    def _decide(self) -> None:
        for action in self._scheduler.decide(self._now_s).actions:
            match action:
                case Start(job_id, allocation):
                    self._start(
                        job_id,
                        Placed(
                            request=self._scheduler.queue.jobs[job_id],
                            allocation=allocation,
                            started_s=self._now_s,
                        ),
                    )
                case Grow(job_id, added):
                    holder = self._scheduler.placed[job_id]
                    self._resize(
                        replace(holder, allocation=merged(holder.allocation, added), moved_s=self._now_s)
                    )
                case Shrink(job_id, removed, _):
                    self._shrinks += 1
                    holder = self._scheduler.placed[job_id]
                    leaving = merged(holder.leaving, removed)
                    self._resize(replace(holder, leaving=leaving, moved_s=self._now_s))
                    self._at(self._now_s + SHRINK_S, "left", job_id)
                case Pause(job_id, _):
                    self._pause(job_id)

    def _start(self, job_id: int, holder: Placed) -> None:
        run = self._runs[job_id]
        if run.started_s is None:
            run.started_s = self._now_s
            request = run.job.request
            self._waits.append((request.priority, self._now_s - request.submitted_s))
        run.updated_s, run.idle_until_s = self._now_s, self._now_s + RESTART_S * run.paused
        self._scheduler.put(holder)
        self._plan_end(job_id, holder.workers)

    def _resize(self, holder: Placed) -> None:
        job_id = holder.request.id
        run, before = self._runs[job_id], self._scheduler.placed[job_id]
        run.advance(self._now_s, before.workers)
        run.idle_until_s = max(run.idle_until_s, self._now_s + SHRINK_S)
        self._scheduler.put(holder)
        self._plan_end(job_id, holder.workers)

    def _plan_end(self, job_id: int, workers: int) -> None:
        self._runs[job_id].version += 1
        self._at(self._runs[job_id].end_s(workers), "end", job_id)

    def _pause(self, job_id: int) -> None:
        self._pauses += 1
        holder, run = self._scheduler.placed[job_id], self._runs[job_id]
        run.advance(self._now_s, holder.workers)
        run.paused = True
        run.version += 1
        self._scheduler.put(replace(holder, pausing=True))
        self._at(self._now_s + CHECKPOINT_S, "left", job_id)

    def _left(self, job_id: int) -> None:
        """Workers that were told to go have gone."""
        holder = self._scheduler.placed[job_id]
        if holder.pausing:
            self._scheduler.remove(job_id, self._now_s)
            self._scheduler.add(holder.request, self._now_s)
        else:
            self._scheduler.put(replace(holder, allocation=holder.staying, leaving=()))


def make_trace(
    seed: int, *, days: float = 7.0, hosts: int = 64, load: float = 0.8, elastic: float = 0.6
) -> tuple[TraceJob, ...]:
    """Return jobs of a made-up team: many small ones, a few large and long ones, some urgent, more by day.

    `load` is the share of all accelerators that the work takes at the size that users would ask for without elastic
    jobs; `elastic` is the share of jobs that may run at a quarter of this size up to twice of it.
    """
    rng = random.Random(seed)
    budget, jobs, now_s = load * hosts * 8 * days * 86400, [], 0.0
    works, sizes = [], []
    while budget > 0:
        workers = rng.choices([1, 2, 4, 8, 16, 32], [30, 20, 20, 18, 8, 4])[0]
        seconds = min(86400.0, max(60.0, rng.lognormvariate(8.0, 1.3)))
        sizes.append(workers)
        works.append(seconds)
        budget -= workers * seconds
    for number, (workers, seconds) in enumerate(zip(sizes, works, strict=True)):
        while True:  # by day three times as many as by night
            now_s = rng.uniform(0, days * 86400)
            if rng.random() < (1.0 if 8 <= now_s / 3600 % 24 < 20 else 1 / 3):
                break
        may_resize = rng.random() < elastic
        request = JobRequest(
            id=number,
            user=f"user{min(int(rng.expovariate(0.25)), 19)}",
            demand=Demand(Resources(4.0, 16.0 * 2**30, 1.0)),
            submitted_s=now_s,
            min_workers=max(1, workers // 4) if may_resize else workers,
            max_workers=2 * workers if may_resize else workers,
            priority=rng.choices([90, 50, 20], [5, 75, 20])[0],
            time_limit_s=3 * seconds * (4 if may_resize else 1),
        )
        jobs.append(TraceJob(request, seconds * _speed(workers)))
    return tuple(sorted(jobs, key=lambda job: job.request.submitted_s))


def rigid(trace: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """Return a trace as it would be without elastic jobs: each has the size that its user would ask for."""
    return tuple(
        job.rigid(job.request.max_workers // 2 if job.request.elastic else job.request.max_workers)
        for job in trace
    )


def make_hosts(count: int = 64) -> tuple[HostCapacity, ...]:
    """Return hosts of eight accelerators each, sixteen in a rack."""
    return tuple(
        HostCapacity(f"host{index:03}", Resources(64.0, 512.0 * 2**30, 8.0), f"rack{index // 16}")
        for index in range(count)
    )
