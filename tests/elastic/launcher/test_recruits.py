"""Bringing hosts in, without any: what the launcher asks of each, and in which order it may answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weft.elastic.launcher.recruits import Recruits
from weft.launch.agent.protocol import (
    AgentOrder,
    BecomeProgram,
    FilesFound,
    FindFiles,
    FindRoutes,
    HostSurveyed,
    RoutesFound,
)
from weft.launch.agent.survey import survey
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines import hosts as engines_hosts
from weft.launch.engines.ssh import SshHosts
from weft.topology.hostlist import parse_hosts


class Calls:
    """A crew that remembers what it was to tell."""

    def __init__(self) -> None:
        self.told: list[tuple[str, type]] = []

    def join(self, command: Any) -> None: ...

    def tell(self, order: AgentOrder, hosts: list[str]) -> None:
        self.told += [(name, type(order)) for name in hosts]


def test_a_host_beside_the_launcher_begins_when_only_the_witness_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other host is away, so the way to the witness shows at which of its addresses it is reached."""
    monkeypatch.setattr(engines_hosts, "is_this_machine", lambda name: name == "h1")
    monkeypatch.setattr(SshHosts, "prepare", lambda self: None)
    config = LaunchConfig(command=Command("script", __file__), hosts=parse_hosts("h1,h2"), per_host=1)
    called = Recruits(config, SshHosts(config), lambda host: None)
    crew: Any = Calls()
    called.crew = crew
    called.miss("h2", "no answer")
    called.call("h1")
    called.call_witness("h3")
    h1, witness = called.hosts["h1"], called.hosts["h3-witness"]
    here = survey()
    card = replace(here.host.cards[0], name="eth0", up=True, loopback=False, addresses=("10.0.0.3",))
    there = replace(here, host=replace(here.host, cards=(card,)))
    called.hear(h1, HostSurveyed(here))
    called.hear(h1, FilesFound(cwd=True, script=True, clock_s=0.0))
    assert crew.told == [("h1", FindFiles)]
    called.hear(witness, HostSurveyed(there))
    assert crew.told[1:] == [("h3-witness", BecomeProgram), ("h1", FindRoutes)]
    called.hear(h1, RoutesFound(("10.0.0.1",)))
    assert crew.told[3:] == [("h1", BecomeProgram)]
    assert h1.address == "10.0.0.1"
