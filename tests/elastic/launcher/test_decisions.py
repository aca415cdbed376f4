"""Decisions of the elastic launcher: which hosts are called, dismissed, or known to be lost."""

from __future__ import annotations

from weft.elastic.launcher.decisions import (
    are_all_ended,
    are_all_replaced,
    have_all_left,
    hosts_to_call,
    hosts_to_dismiss,
)
from weft.elastic.launcher.recruits import HostRecord, HostState

AWAY, RUNNING, GONE, DONE = HostState.AWAY, HostState.RUNNING, HostState.GONE, HostState.DONE


def test_hosts_that_are_away_are_called_when_they_are_due_and_still_wanted() -> None:
    due, later = HostRecord("a", AWAY, retry_at=5.0), HostRecord("b", AWAY, retry_at=9.0)
    unwanted, witness = HostRecord("c", AWAY), HostRecord("w", AWAY, witness=True)
    assert hosts_to_call([due, later, unwanted, witness], {"a", "b"}, 6.0) == [due, witness]


def test_a_host_that_left_is_called_when_it_is_wanted_again() -> None:
    dismissed, ended = HostRecord("a", GONE, dismissed=True), HostRecord("b", GONE)
    assert hosts_to_call([dismissed, ended], {"a", "b"}, 0.0) == [dismissed]
    assert hosts_to_call([dismissed], {"b"}, 0.0) == []


def test_unwanted_hosts_stay_until_the_others_have_enough_workers() -> None:
    a, b = HostRecord("a", RUNNING, workers=2), HostRecord("b", RUNNING, workers=2)
    witness = HostRecord("w", RUNNING, witness=True)
    hosts = {host.name: host for host in (a, b, witness)}
    assert hosts_to_dismiss(hosts, {"b"}, least=3) == []
    assert hosts_to_dismiss(hosts, {"b"}, least=2) == [a]


def test_the_run_is_lost_when_every_host_is_back_with_another_agent() -> None:
    a = HostRecord("a", RUNNING, agent="a#2", lives=2, view=0)
    b = HostRecord("b", RUNNING, agent="b#1", lives=1, view=3)
    assert not are_all_replaced([a, b], {"a#1", "b#1"})
    b.agent = "b#2"
    assert are_all_replaced([a, b], {"a#1", "b#1"})
    b.view = -1  # it has not said what it knows
    assert not are_all_replaced([a, b], {"a#1", "b#1"})
    b.state = AWAY  # its agent may still be there
    assert not are_all_replaced([a, b], {"a#1", "b#1"})
    assert not are_all_replaced([], {"a#1"})


def test_a_run_has_no_hosts_when_all_left_and_none_is_wanted() -> None:
    left, lost = HostRecord("a", GONE), HostRecord("b", AWAY)
    assert not have_all_left([left, lost], {"b"})
    assert have_all_left([left, lost], {"c"})
    assert not have_all_left([left, HostRecord("c", RUNNING)], {"c"})


def test_a_run_has_ended_when_no_agent_takes_part() -> None:
    assert are_all_ended([HostRecord("a", DONE), HostRecord("b", AWAY)])
    assert not are_all_ended([HostRecord("a", DONE), HostRecord("b", HostState.LISTENING)])
