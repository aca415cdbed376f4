"""The time of one decision over 10,000 jobs and 1,000 hosts: from nothing, and after one event.

    python benchmarks/jobs.py decide [--jobs 10000] [--hosts 1000] [--rounds 9]

A third of the jobs run and fill the cluster, the others wait: of 40 users, with 24 different needs, half of them
elastic. "All" is the pure function: it builds the index of every job and host and decides. "One event" is a job that
ends or comes: the index is updated, and decides. Times are CPU times of this process, medians of the rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import replace

from benchmarks import claims

from weft.jobs.scheduler.decide import Scheduler, decide
from weft.jobs.scheduler.model import (
    ClusterState,
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

NOW_S = 1_000_000.0
NEEDS = [(1, 3600.0), (1, 86400.0), (2, 7200.0), (4, 14400.0), (8, 28800.0), (8, 86400.0)]
DEMANDS = [Demand(Resources(4.0, gib * 2.0**30, 1.0)) for gib in (8, 16, 32, 64)]


def make_state(jobs: int, hosts: int, seed: int = 0) -> ClusterState:
    """Return a full cluster: as many jobs as fit run, the others wait."""
    rng = random.Random(seed)
    machines = tuple(
        HostCapacity(f"host{index:04}", Resources(64.0, 512 * 2.0**30, 8.0), f"rack{index // 20}")
        for index in range(hosts)
    )
    scheduler = Scheduler(machines, Policy())
    requests = [_request(rng, number) for number in range(jobs)]
    for request in requests:
        scheduler.queue.add(request)
    for action in scheduler.decide(NOW_S - 600.0).actions:
        assert isinstance(action, Start)
        job = scheduler.queue.jobs[action.job]
        scheduler.put(Placed(request=job, allocation=action.allocation, started_s=NOW_S - 600.0))
    return ClusterState(
        now_s=NOW_S,
        hosts=machines,
        waiting=tuple(scheduler.queue.jobs.values()),
        placed=tuple(scheduler.placed.values()),
        usage={f"user{number}": rng.random() / 20 for number in range(40)},
        changed_s=NOW_S,
    )


def _request(rng: random.Random, number: int) -> JobRequest:
    workers, limit_s = rng.choice(NEEDS)
    elastic = rng.random() < 0.5
    return JobRequest(
        id=number,
        user=f"user{min(int(rng.expovariate(0.1)), 39)}",
        demand=rng.choice(DEMANDS),
        submitted_s=NOW_S - 86400 * rng.random(),
        min_workers=workers,
        max_workers=4 * workers if elastic else workers,
        priority=rng.choices([90, 50, 20], [2, 78, 20])[0],
        time_limit_s=limit_s,
    )


def apply(scheduler: Scheduler, now_s: float) -> int:
    """Decide and record what was decided, as the dispatcher does; return the number of actions."""
    actions = scheduler.decide(now_s).actions
    for action in actions:
        match action:
            case Start(job_id, allocation):
                job = scheduler.queue.jobs[job_id]
                scheduler.put(Placed(request=job, allocation=allocation, started_s=now_s))
            case Grow(job_id, added):
                placed = scheduler.placed[job_id]
                grown = merged(placed.allocation, added)
                scheduler.put(replace(placed, allocation=grown, moved_s=now_s))
            case Shrink(job_id, removed, _):
                placed = scheduler.placed[job_id]
                scheduler.put(
                    replace(placed, allocation=merged(placed.allocation, removed, -1), moved_s=now_s)
                )
            case Pause(job_id, _):
                placed = scheduler.placed[job_id]
                scheduler.remove(job_id, now_s)
                scheduler.add(placed.request, now_s)
    return len(actions)


def time_all(state: ClusterState, rounds: int) -> list[float]:
    """Return the milliseconds of decisions from nothing."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        decide(state)
        times.append((time.process_time() - began) * 1000)
    return times


def time_events(state: ClusterState, rounds: int, seed: int = 1) -> list[float]:
    """Return the milliseconds of decisions after one event: in turn a job that ends, and one that comes."""
    rng = random.Random(seed)
    scheduler = Scheduler(state.hosts, state.policy)
    for placed in state.placed:
        scheduler.put(placed)
    for job in state.waiting:
        scheduler.queue.add(job)
    scheduler.usage = dict(state.usage)
    apply(scheduler, NOW_S)
    times = []
    for turn in range(20 * rounds):
        now_s = NOW_S + 1.0 + turn
        ending = rng.choice(list(scheduler.placed))
        began = time.process_time()
        if turn % 2:
            scheduler.remove(ending, now_s)
        else:
            scheduler.add(_request(rng, 1_000_000 + turn), now_s)
        scheduler.decide(now_s)
        times.append((time.process_time() - began) * 1000)
        apply(scheduler, now_s)
    return times


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args(words)
    state = make_state(asked.jobs, asked.hosts)
    print(f"{len(state.placed)} jobs run, {len(state.waiting)} wait, {asked.hosts} hosts", flush=True)
    everything, events = time_all(state, asked.rounds), time_events(state, asked.rounds)
    print(
        f"all: {min(everything):.1f} to {max(everything):.1f} ms; one event: {min(events):.2f} to {max(events):.2f} ms"
    )
    found = {
        "decide-all": statistics.median(everything),
        "decide-event": statistics.median(events),
        "decide-event-p95": sorted(events)[int(0.95 * len(events))],
    }
    print(claims.report("jobs_scheduling", found), end="")
