"""Laws of the scheduler, on random clusters that live through many decisions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs.scheduler.clusters import waiting_clusters

from weft.jobs.scheduler.decide import Decision, Scheduler, decide
from weft.jobs.scheduler.explain import Explanations
from weft.jobs.scheduler.model import ClusterState, Grow, Pause, Placed, Shrink, Start, merged, size


def apply(state: ClusterState, decision: Decision, scheduler: Scheduler) -> ClusterState:
    """The state once all actions have been carried out; shrinks and pauses are only told."""
    waiting = {job.id: job for job in state.waiting}
    placed = {holder.request.id: holder for holder in state.placed}
    for action in decision.actions:
        match action:
            case Start(number, allocation):
                placed[number] = Placed(
                    request=waiting.pop(number), allocation=allocation, started_s=state.now_s
                )
            case Grow(number, added):
                grown = merged(placed[number].allocation, added)
                placed[number] = replace(placed[number], allocation=grown, moved_s=state.now_s)
            case Shrink(number, removed, _):
                leaving = merged(placed[number].leaving, removed)
                placed[number] = replace(placed[number], leaving=leaving, moved_s=state.now_s)
            case Pause(number, _):
                placed[number] = replace(placed[number], pausing=True)
        scheduler.put(placed[action.job])
    return replace(state, waiting=tuple(waiting.values()), placed=tuple(placed.values()))


def leave(state: ClusterState, scheduler: Scheduler, number: int) -> ClusterState:
    """The state once one job that was told to give way has done so, or one that ran has ended."""
    holder = sorted(state.placed, key=lambda p: p.request.id)[number % len(state.placed)]
    placed = [p for p in state.placed if p is not holder]
    waiting = list(state.waiting)
    if holder.leaving and not holder.pausing:
        placed.append(replace(holder, allocation=merged(holder.allocation, holder.leaving, -1), leaving=()))
        scheduler.put(placed[-1])
    else:
        scheduler.remove(holder.request.id, state.now_s)
        if holder.pausing:
            waiting.append(holder.request)
            scheduler.add(holder.request, state.now_s)
    return replace(state, placed=tuple(placed), waiting=tuple(waiting), changed_s=state.now_s)


def check(state: ClusterState) -> None:
    machines = {host.name: host for host in state.hosts}
    used = {name: [0.0, 0.0, 0.0] for name in machines}
    for holder in state.placed:
        request = holder.request
        if not holder.pausing:
            assert request.min_workers <= holder.workers <= request.max_workers
        assert all(dict(holder.allocation)[host] >= count for host, count in holder.leaving)
        for name, count in holder.allocation:
            per_worker = request.demand.per_worker
            assert machines[name].open
            assert request.demand.labels <= machines[name].labels
            for row, need in enumerate((per_worker.cpus, per_worker.memory_bytes, per_worker.gpus)):
                used[name][row] += count * need
    for name, (cpus, memory, gpus) in used.items():
        total = machines[name].total
        assert cpus <= total.cpus + 1e-6
        assert memory <= total.memory_bytes * (1 + 1e-9)
        assert gpus <= total.gpus + 1e-6


@given(waiting_clusters(), st.lists(st.integers(0, 99), min_size=1, max_size=12))
@settings(max_examples=150)
def test_no_host_is_over_allocated_and_sizes_stay_within_bounds(
    start: ClusterState, events: list[int]
) -> None:
    state, scheduler = start, Scheduler(start.hosts, start.policy)
    scheduler.usage = dict(start.usage)
    for job in state.waiting:
        scheduler.queue.add(job)
    for event in events:
        decision = scheduler.decide(state.now_s)
        assert decision == decide(state)  # the index is as good as the state, and asking changes nothing
        moved = {action.job for action in decision.actions if isinstance(action, (Shrink, Pause))}
        for action in decision.actions:
            if isinstance(action, (Shrink, Pause)):
                victim = next(p.request for p in state.placed if p.request.id == action.job)
                urgent = next(job for job in state.waiting if job.id == action.for_job)
                assert victim.priority < urgent.priority or (
                    isinstance(action, Shrink)
                    and victim.priority == urgent.priority
                    and victim.user != urgent.user
                )
                assert isinstance(action, Shrink) or victim.preemptible
                assert action.for_job in decision.claims  # no move without benefit
            else:
                assert action.job not in moved
        reasons = Explanations(scheduler, decision, state.now_s)
        waiting_now = {job.id for job in state.waiting} - {a.job for a in decision.actions}
        places = sorted(r.place for r in map(reasons.reason, waiting_now) if r.place is not None)
        assert places == list(range(1, len(places) + 1))
        starting = [action.job for action in decision.actions if isinstance(action, Start)]
        assert {reasons.reason(job).text for job in starting} <= {"it starts now"}
        state = apply(state, decision, scheduler)
        check(state)
        state = replace(state, now_s=state.now_s + 400.0)
        if state.placed:
            state = leave(state, scheduler, event)


@given(waiting_clusters())
@settings(max_examples=60)
def test_every_job_that_fits_at_all_starts_in_the_end(start: ClusterState) -> None:
    state = replace(start, waiting=tuple(replace(job, held=False, not_before_s=0.0) for job in start.waiting))
    scheduler = Scheduler(state.hosts, state.policy)
    for job in state.waiting:
        scheduler.queue.add(job)
    for _ in range(12 * 12):
        state = apply(state, scheduler.decide(state.now_s), scheduler)
        state = replace(state, now_s=state.now_s + 400.0)
        if not state.placed:
            break
        state = leave(state, scheduler, 0)
    assert not [job for job in state.waiting if scheduler.can_ever_run(job)]
    assert not any(size(holder.allocation) for holder in state.placed)
