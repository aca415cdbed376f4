from __future__ import annotations

from dataclasses import replace

import pytest
from tests.jobs.scheduler.clusters import cluster, demand, host, hosts, job, running

from weft.jobs.scheduler.decide import decide
from weft.jobs.scheduler.model import Grow, Pause, Policy, Resources, Shrink, Start


def test_a_job_starts_where_it_fits() -> None:
    assert decide(cluster(waiting=(job(1, 2),))).actions == (Start(1, (("h0", 2),)),)


def test_the_fullest_host_that_has_room_is_taken() -> None:
    busy = running(job(1, 2), ("h1", 2))
    assert decide(cluster(placed=(busy,), waiting=(job(2, 2),))).actions == (Start(2, (("h1", 2),)),)


def test_a_job_larger_than_a_host_stays_within_a_rack_in_equal_shares() -> None:
    machines = (*hosts(1, rack="r0"), host("a", rack="r1"), host("b", rack="r1"), host("c", rack="r1"))
    actions = decide(cluster(hosts=machines, waiting=(job(1, 6),))).actions
    assert actions == (Start(1, (("a", 3), ("b", 3))),)


def test_labels_and_hosts_to_avoid_are_respected() -> None:
    machines = (host("a", labels=frozenset({"fast"})), host("b"), host("c", labels=frozenset({"fast"})))
    wanted = demand(labels=frozenset({"fast"}), avoid=frozenset({"a"}))
    assert decide(cluster(hosts=machines, waiting=(job(1, demand=wanted),))).actions == (
        Start(1, (("c", 1),)),
    )


def test_a_drained_host_takes_nothing() -> None:
    assert decide(cluster(hosts=(host("a", open=False),), waiting=(job(1),))).actions == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (job(2, 4, priority=90), job(1, 4, priority=50)),
        (job(1, 4), job(2, 4)),  # of equals the older
        (job(2, 4, user="bob"), job(1, 4, user="ann")),  # ann has used the cluster lately
    ],
    ids=["priority", "age", "share"],
)
def test_the_order_is_by_priority_share_and_age(first: object, second: object) -> None:
    state = cluster(hosts=hosts(1), waiting=(second, first), usage={"ann": 0.5})
    actions = decide(state).actions
    assert [action.job for action in actions] == [first.id]  # type: ignore[attr-defined]


def test_a_job_that_waited_long_enough_is_before_an_urgent_one() -> None:
    old, urgent = job(1, 4, priority=50, submitted_s=0.0), job(2, 4, priority=60, submitted_s=11 * 3600.0)
    state = cluster(hosts=hosts(1), now_s=11 * 3600.0, waiting=(old, urgent))
    assert [action.job for action in decide(state).actions] == [1]


def test_two_users_with_equal_jobs_get_equal_parts() -> None:
    jobs = [job(n, user="ann") for n in range(8)] + [job(n, user="bob") for n in range(8, 16)]
    started = [action.job for action in decide(cluster(waiting=tuple(jobs))).actions]
    assert len(started) == 8
    assert sum(number < 8 for number in started) == 4


def test_the_first_job_that_cannot_start_keeps_hosts_and_shorter_ones_go_before_it() -> None:
    busy = running(job(1, 4, time_limit_s=1100.0), ("h0", 4))
    large = job(2, 8, submitted_s=2.0)
    short, long = (
        job(3, 1, submitted_s=3.0, time_limit_s=50.0),
        job(4, 1, submitted_s=4.0, time_limit_s=5000.0),
    )
    decision = decide(cluster(placed=(busy,), waiting=(large, short, long)))
    assert [action.job for action in decision.actions] == [3]
    assert decision.reservation is not None
    assert (decision.reservation.job, decision.reservation.start_s) == (2, 1100.0)


def test_a_job_that_never_fits_keeps_nothing() -> None:
    decision = decide(cluster(waiting=(job(1, 99), job(2, 1, submitted_s=2.0))))
    assert [action.job for action in decision.actions] == [2]
    assert decision.reservation is None


def test_an_urgent_job_shrinks_the_least_important_elastic_job_by_as_few_workers_as_suffice() -> None:
    low = running(job(1, 1, 4, priority=10), ("h0", 4))
    middle = running(job(2, 1, 4, priority=50), ("h1", 4))
    decision = decide(cluster(placed=(low, middle), waiting=(job(3, 2, priority=90),)))
    assert decision.actions == (Shrink(1, (("h0", 2),), 3),)
    assert decision.claims == {3: (("h0", 2),)}


def test_workers_on_their_way_out_are_kept_for_the_job_that_asked_and_nobody_is_asked_twice() -> None:
    low = running(job(1, 1, 4, priority=10), ("h0", 4), leaving=(("h0", 2),))
    urgent, other = job(3, 2, priority=90), job(4, 1, priority=5, submitted_s=999.0)
    assert decide(cluster(hosts=hosts(1), placed=(low,), waiting=(urgent, other))).actions == ()
    gone = replace(low, allocation=(("h0", 2),), leaving=())
    after = decide(cluster(hosts=hosts(1), placed=(gone,), waiting=(urgent, other)))
    assert after.actions[0] == Start(3, (("h0", 2),))


def test_elastic_jobs_never_shrink_below_their_minimum_then_others_pause() -> None:
    elastic = running(job(1, 3, 4, priority=10), ("h0", 4))
    fixed = running(job(2, 4, priority=20), ("h1", 4))
    decision = decide(cluster(placed=(elastic, fixed), waiting=(job(3, 4, priority=90),)))
    assert [type(action) for action in decision.actions] == [Pause]


def test_a_job_that_is_not_preemptible_is_left_alone() -> None:
    fixed = running(job(1, 4, priority=10, preemptible=False), ("h0", 4))
    assert decide(cluster(hosts=hosts(1), placed=(fixed,), waiting=(job(2, 1, priority=90),))).actions == ()


def test_equal_priority_takes_workers_only_from_users_with_clearly_more() -> None:
    rich = running(job(1, 1, 8, user="ann"), ("h0", 4), ("h1", 4))
    for usage, moves in (({}, True), ({"bob": 0.9}, False)):
        decision = decide(cluster(placed=(rich,), waiting=(job(2, 1, user="bob"),), usage=usage))
        assert bool(decision.actions) is moves
    mine = decide(cluster(placed=(rich,), waiting=(job(2, 1, user="ann"),)))
    assert mine.actions == ()


def test_a_job_that_moved_lately_is_not_moved_again_for_an_equal() -> None:
    rich = running(job(1, 1, 8, user="ann"), ("h0", 4), ("h1", 4), moved_s=900.0)
    assert decide(cluster(placed=(rich,), waiting=(job(2, 1, user="bob"),))).actions == ()


def test_a_new_elastic_job_starts_as_large_as_there_is_room() -> None:
    assert decide(cluster(waiting=(job(1, 1, 6),))).actions == (Start(1, (("h0", 4), ("h1", 2))),)


def test_running_elastic_jobs_grow_into_what_has_been_idle() -> None:
    small = running(job(1, 1, 8), ("h0", 2))
    assert decide(cluster(placed=(small,), changed_s=990.0)).actions == ()
    assert decide(cluster(placed=(small,))).actions == (Grow(1, (("h0", 2), ("h1", 4))),)


def test_quotas_hold_for_starts_and_for_growth() -> None:
    policy = Policy(quotas={"ann": Resources(100, 1e15, 3)})
    jobs = (job(1, 2), job(2, 2, submitted_s=2.0), job(3, 1, 5, submitted_s=3.0))
    decision = decide(cluster(waiting=jobs, policy=policy))
    assert decision.actions == (Start(1, (("h0", 2),)), Start(3, (("h0", 1),)))
    assert decision.over_quota == {2}


def test_held_jobs_and_jobs_whose_time_has_not_come_do_not_start() -> None:
    jobs = (
        job(1, held=True),
        job(2, blocked_by=(1,)),
        job(3, not_before_s=2000.0),
        job(4, not_before_s=999.0),
    )
    assert [action.job for action in decide(cluster(waiting=jobs)).actions] == [4]
