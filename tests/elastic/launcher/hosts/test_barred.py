"""Hosts that are barred after a worker failed there."""

from __future__ import annotations

import math
from typing import Any

import pytest

from weft.elastic.launcher.hosts.barred import BarredHosts, BarringRule, hosts_of_failures, parse_barring
from weft.errors import UsageError
from weft.topology.hostlist import HostEntry

HOSTS = (HostEntry("h1"), HostEntry("h2"))


def test_a_barred_host_is_not_used_until_its_time_is_over_which_doubles_up_to_a_limit() -> None:
    barred = BarredHosts(parse_barring("10:25"))
    assert barred.bar("h2", 100.0) == 10.0
    assert barred.allowed(HOSTS, 109.0) == (HostEntry("h1"),)
    assert barred.bar("h2", 105.0) is None, "it is barred already"
    assert barred.allowed(HOSTS, 110.0) == HOSTS
    assert barred.bar("h2", 200.0) == 20.0
    assert barred.bar("h2", 300.0) == 25.0
    assert barred.bar("h1", 310.0) == 10.0, "each host has a count of its own"
    assert barred.allowed(HOSTS, 311.0) == HOSTS, "some host must be there"


def test_a_host_may_be_barred_for_good() -> None:
    barred = BarredHosts(parse_barring("forever"))
    assert barred.bar("h1", 0.0) == math.inf
    assert barred.allowed(HOSTS, 1e12) == (HostEntry("h2"),)
    assert parse_barring("5") == BarringRule(5.0)
    assert BarringRule(5.0).pause_s(1000) == 5.0


@pytest.mark.parametrize("text", ["", "x", "0:5", "9:3", "1:nan", "-1", "1:inf"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--bar-hosts must be"):
        parse_barring(text)


@pytest.mark.parametrize(
    ("event", "hosts"),
    [
        ({"event": "detected", "kind": "death", "who": ["h2/0.1", "h2/1.0"]}, ["h2"]),
        ({"event": "detected", "kind": "leave", "who": ["h2/0.1"]}, []),
        ({"event": "detected", "kind": "host", "who": ["h2/0.1"]}, []),
        ({"event": "agreed", "host": "h1"}, []),
    ],
)
def test_a_worker_that_fails_bars_its_host_and_nothing_else_does(
    event: dict[str, Any], hosts: list[str]
) -> None:
    assert hosts_of_failures(event) == hosts
