"""How long a worker may make no progress, by what it does and where its peers are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.elastic.membership.stalls import (
    COMMITS_TO_FORGET,
    FIRST_TIME_S,
    MOST_DOUBLINGS,
    Alarms,
    Stall,
    is_stuck,
)
from weft.elastic.timing import Timing

TIMING = Timing(2.0)
IDLE = Stall(2.1, others_wait_s=2.1)


def test_a_worker_that_does_nothing_while_all_wait_for_it_is_stuck_after_detect_within() -> None:
    assert is_stuck(IDLE, TIMING)
    assert not is_stuck(replace(IDLE, idle_s=1.9), TIMING)


@pytest.mark.parametrize(
    "patient",
    [
        Stall(2.1, others_wait_s=1.0),  # the others were slow too, but for the last second
        Stall(60, computes=True, others_wait_s=60),  # a validation on one worker
        Stall(240, computes=True),  # on all; a model that is compiled; the only member
        Stall(20),  # all wait for something slow
        Stall(200, others_wait_s=200, first_time=True),
        Stall(8, others_wait_s=8, step_s=3),
        Stall(3.9, others_wait_s=3.9, alarms=1),  # the last alarm may have been a false one
    ],
    ids=str,
)
def test_what_is_not_stuck(patient: Stall) -> None:
    assert not is_stuck(patient, TIMING)
    assert is_stuck(replace(patient, idle_s=FIRST_TIME_S + 1, others_wait_s=FIRST_TIME_S + 1), TIMING)


def limit_s(alarms: int) -> float:
    return next(
        seconds
        for seconds in range(1000)
        if is_stuck(Stall(seconds, others_wait_s=seconds, alarms=alarms), TIMING)
    )


def test_limits_rise_with_alarms_up_to_a_point_and_fall_with_commits() -> None:
    limits = [limit_s(alarms) for alarms in range(8)]
    assert limits[:3] == [3, 5, 9]
    assert set(limits[MOST_DOUBLINGS:]) == {1 + 2 * 2**MOST_DOUBLINGS}
    alarms = Alarms().raised().raised()
    assert alarms.count == 2
    for _ in range(COMMITS_TO_FORGET):
        alarms = alarms.committed()
    assert alarms == Alarms(1)
    assert Alarms().committed() == Alarms()


def test_limits_rise_in_the_order_of_patience() -> None:
    for detect_within in (0.4, 2.0, 60.0):
        timing = Timing(detect_within)
        ladder = [timing.detect_within, timing.all_idle_s, timing.busy_s, timing.all_busy_s]
        assert ladder == sorted(ladder)
