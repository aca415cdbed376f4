"""Decisions of the elastic launcher: which hosts are called, dismissed, or known to be lost."""

from __future__ import annotations

from weft.elastic.launcher.decisions import (
    are_all_ended,
    are_all_replaced,
    have_all_left,
    hosts_to_call,
    hosts_to_dismiss,
    hosts_to_resize,
    too_few_slots,
)
from weft.elastic.launcher.recruits import HostRecord, HostState
from weft.launch.sites import HostSite
from weft.topology.hostlist import HostEntry, parse_hosts

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


SITE = HostSite(name="a", host=None, address="10.0.0.1")


def test_hosts_whose_number_of_workers_changed_are_resized() -> None:
    a = HostRecord("a", RUNNING, site=SITE, entry=HostEntry("a", 4))
    b = HostRecord("b", RUNNING, site=SITE, entry=HostEntry("b", 2))
    late = HostRecord("c", HostState.LISTENING, site=SITE, entry=HostEntry("c", 2))
    hosts = {host.name: host for host in (a, b, late)}
    assert hosts_to_resize(hosts, parse_hosts("a:1,b:2,c:1,d:1")) == [a]
    late.state = RUNNING  # what was asked for while it came in
    assert hosts_to_resize(hosts, parse_hosts("a:4,b:2,c:1")) == [late]
    assert hosts_to_resize(hosts, (HostEntry("b", 2, cpus=(0, 1)),)) == [b]


def test_a_run_keeps_its_least_workers() -> None:
    assert too_few_slots(parse_hosts("a:1,b:2"), least=3, most=4) is None
    told = too_few_slots(parse_hosts("a:1,b"), least=3, most=4, per_host=1)
    assert told is not None
    assert told.startswith(
        "a run must keep at least 3 workers (--elastic 3:4), got 2 with a:1,b:1; name more"
    )
    assert too_few_slots(parse_hosts("a:1,b"), least=3, most=4) is None  # only b knows its number
    assert too_few_slots((), least=3, most=4) is None
