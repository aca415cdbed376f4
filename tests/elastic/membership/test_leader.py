"""What the leader makes of what the agents say of themselves."""

from __future__ import annotations

import pytest

from weft.elastic.membership.leader import Leader
from weft.elastic.membership.policy import MembershipRules
from weft.elastic.membership.reports import AgentReport, AgentStatus, WorkerReport, WorkerState
from weft.elastic.membership.stragglers import Stragglers
from weft.elastic.membership.view import Member, View
from weft.elastic.timing import Timing

RULES = MembershipRules(least=1, most=2, gather_s=0.2, broken_s=1.0, waiting_s=2.0, start_within_s=30.0)
VIEW = View(1, tuple(Member(f"{host}/0.0", host, host, 0, "", 0, 0) for host in "ab"), ("a", "b"))


def agent(name: str) -> AgentReport:
    workers = () if name == "w" else (WorkerReport(f"{name}/0.0", 0, WorkerState.MEMBER, stepped=1),)
    return AgentReport(name, name, "", workers, witness=name == "w")


def status(name: str, **round_trip_s: float) -> AgentStatus:
    return AgentStatus(
        report=agent(name),
        view=1,
        voters=VIEW.voters,
        over="",
        code=0,
        possible=1,
        trouble=("", 0),
        micros={},
        round_trip_s=round_trip_s,
        roster={},
    )


@pytest.mark.parametrize(("third", "slow"), [("w", 0), ("c", 2)])
def test_two_hosts_that_are_slow_to_each_other_are_not_slow_because_a_witness_is_quick(
    third: str, slow: int
) -> None:
    leader = Leader(RULES, Timing(), Stragglers("evict", 1), 2, now=0.0)
    living = {name: agent(name) for name in ("a", "b", third)}
    trips = {
        name: {peer: 0.5 if {name, peer} == {"a", "b"} else 0.001 for peer in living.keys() - {name}}
        for name in living
    }
    statuses = {name: status(name, **trips[name]) for name in living}
    decisions = [leader.decide(VIEW, living, statuses, 100.0 * (look + 1)) for look in range(3)]
    findings = [finding for decision in decisions for finding in decision.findings]
    assert [finding.workers for finding in findings] == [("a/0.0",), ("b/0.0",)][:slow]
    assert all(finding.evict and "slow link" in finding.cause for finding in findings)


def test_a_proposal_is_made_once_until_it_is_decided_or_tried_again() -> None:
    timing = Timing()
    leader = Leader(RULES, timing, Stragglers("report", 1), 2, now=100.0)
    living = {"a": agent("a")}  # b is lost
    statuses = {"a": status("a")}
    proposal = leader.decide(VIEW, living, statuses, 100.0).proposal
    assert proposal is not None
    assert (proposal.number, proposal.cause) == (2, "death: lost b/0.0")
    assert leader.decide(VIEW, living, statuses, 100.0).proposal is None
    assert leader.decide(VIEW, living, statuses, 100.0 + 2 * timing.retry_s).proposal == proposal
    leader.on_view(101.0)
    assert leader.decide(VIEW, living, statuses, 101.0).proposal == proposal
