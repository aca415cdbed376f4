"""What is known of hosts is not asked again, and forgotten when it may no longer hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.launch.sites import machine

from weft.launch.address import Reach
from weft.launch.agent.survey import Survey, survey
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.control.agents import AgentPool
from weft.launch.engines.hosts import HostKnowledge, Hosts
from weft.topology.hostlist import parse_hosts


class AskedError(Exception):
    """A host was asked something."""


class SilentHosts(Hosts):
    """Hosts that must not be asked."""

    def start_on(self, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        raise AskedError

    @property
    def crew(self) -> AgentPool:
        raise AskedError


def known() -> HostKnowledge:
    mine = survey()
    surveys: dict[str, Survey] = {
        name: replace(mine, host=machine(name), reached_at=None) for name in ("h1", "h2")
    }
    return HostKnowledge(
        surveys=surveys,
        reached={"h2": (Reach(address="10.0.0.1", source="10.0.0.2", seen_as="10.0.0.2"),)},
    )


@pytest.fixture
def hosts() -> SilentHosts:
    return SilentHosts(LaunchConfig(command=Command("command", "true"), hosts=parse_hosts("h1,h2")))


def test_a_plan_needs_no_more_than_the_preflight_found(hosts: SilentHosts) -> None:
    hosts.remember(known())
    assert [(site.name, site.address, site.interface) for site in hosts.sites()] == [
        ("h1", "10.0.0.1", "eth0"),
        ("h2", "10.0.0.2", "eth0"),
    ]
    assert hosts.sites() == hosts.sites()


def test_a_host_behind_a_translated_address_has_no_card(hosts: SilentHosts) -> None:
    unknown_source = {"h2": (Reach(address="10.0.0.1", source=None, seen_as="10.0.0.9"),)}
    hosts.remember(replace(known(), reached=unknown_source))
    assert [(site.address, site.interface) for site in hosts.sites()][1] == ("10.0.0.1", None)


@pytest.mark.parametrize("missing", ["surveys", "reached"])
def test_what_is_not_known_is_asked(hosts: SilentHosts, missing: str) -> None:
    hosts.remember(replace(known(), **{missing: None}))  # type: ignore[arg-type]
    with pytest.raises(AskedError):
        hosts.sites()


def test_with_other_hosts_another_may_lead_and_the_way_to_it_is_asked(hosts: SilentHosts) -> None:
    hosts.remember(known())
    hosts.keep(("h2", "h1"))
    assert hosts.leader == "h2"
    with pytest.raises(AskedError):
        hosts.sites()
