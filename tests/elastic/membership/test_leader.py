"""What the leader makes of what the agents say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from weft.elastic.membership.leader import Leading
from weft.elastic.membership.policy import AgentReport, Rules, WorkerReport
from weft.elastic.membership.stragglers import Slowness
from weft.elastic.membership.view import Member, View
from weft.elastic.timing import Timing

RULES = Rules(least=1, most=2, gather_s=0.2, broken_s=1.0, waiting_s=2.0, start_within_s=30.0)
VIEW = View(1, tuple(Member(f"{host}/0.0", host, host, 0, "", 0, 0) for host in "ab"), ("a", "b"))


class Journal:
    def __init__(self) -> None:
        self.told: list[str] = []

    def event(self, name: str, **about: Any) -> None:
        self.told.append(about["cause"])


def agent(name: str) -> AgentReport:
    workers = () if name == "w" else (WorkerReport(f"{name}/0.0", 0, "member", stepped=1),)
    return AgentReport(name, name, "", workers, witness=name == "w")


@pytest.mark.parametrize(("third", "slow"), [("w", 0), ("c", 2)])
def test_two_hosts_that_are_slow_to_each_other_are_not_slow_because_a_witness_is_quick(
    third: str, slow: int
) -> None:
    journal: Any = Journal()
    evicted: list[str] = []
    leading = Leading(RULES, Timing(), Slowness("evict", 1, journal, evicted.append), 2)
    living = {name: agent(name) for name in ("a", "b", third)}
    trips = {
        name: {peer: 0.5 if {name, peer} == {"a", "b"} else 0.001 for peer in living.keys() - {name}}
        for name in living
    }
    statuses = {name: {"micros": {}, "round_trip_s": trips[name]} for name in living}
    for look in range(3):
        leading.wish(VIEW, living, statuses, 100.0 * (look + 1))
    assert len(evicted) == len(journal.told) == slow
