from __future__ import annotations

from weft.jobs.scheduler.model import Policy
from weft.jobs.scheduler.simulation import Simulation, SimulationResult, make_hosts, make_trace, rigid

TRACE = make_trace(1, days=0.6, hosts=16, load=0.9)


def play(policy: Policy, *, elastic: bool) -> SimulationResult:
    return Simulation(make_hosts(16), policy).play(TRACE if elastic else rigid(TRACE))


def test_every_job_ends_and_the_same_trace_gives_the_same_result() -> None:
    first, again = (play(Policy(), elastic=True) for _ in range(2))
    assert first == again
    assert first.jobs == len(TRACE)


def test_shrinking_beats_a_plain_queue_and_pausing_at_checkpoints() -> None:
    ours = play(Policy(), elastic=True)
    plain = play(Policy(backfill=False, preempt=False, share_points=0.0), elastic=False)
    pausing = play(Policy(shrink=False), elastic=False)
    for other in (plain, pausing):
        assert ours.mean_wait_s < other.mean_wait_s
        assert ours.mean_turnaround_s < other.mean_turnaround_s
    assert ours.shrinks > 0
    assert plain.shrinks == plain.pauses == pausing.shrinks == 0
