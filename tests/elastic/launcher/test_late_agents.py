"""Hosts that are called again: an agent that is still there keeps the run, and counts as the one that it was."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.elastic.launcher.test_missed_orders import Lines

from weft.elastic.agent.launcher_messages import (
    ORDER_DECODER,
    AgentAbsent,
    AgentAttached,
    AgentListening,
    AttachOrder,
    ElasticEvent,
)
from weft.elastic.launcher.adopt import AdoptingLauncher
from weft.elastic.launcher.launcher import ElasticLauncher
from weft.elastic.launcher.recruits import HostRecord, HostState, Recruits

ATTACHED = AgentAttached("h2#first", "10.0.0.2", 7, {})


class Called:
    """A launcher of one kind that has called a host again, and what it did then."""

    def __init__(
        self, kind: type[ElasticLauncher], lives: int, folder: Path, *, witness: bool = False
    ) -> None:
        self.host = HostRecord("h2", ranks=[1], lives=lives, witness=witness)
        self.started: list[str] = []
        self.swept: list[str] = []
        self.planned: list[str] = []
        self.launcher = _bare(kind)
        self.launcher._crew, self.launcher._first = Lines(), object()
        self.launcher._crew.connections = {"h2": _Connection()}
        self.launcher._scaler = SimpleNamespace(names=lambda: {"h2"})
        self.launcher._run, self.launcher._secret = "run", "secret"
        self.launcher._over, self.launcher._code, self.launcher._pausing = "", 0, False
        self.launcher._settling, self.launcher._absent, self.launcher._interrupted = False, set(), None
        self.launcher._hosts = {"h2": self.host}
        self.launcher._files = _Files(folder)
        self.launcher._is_here = lambda host: False
        self.launcher._say = self.launcher._send_slots = lambda *_: None
        self.launcher._start = lambda host: self.started.append(host.name)
        recruits: Any = Recruits.__new__(Recruits)
        recruits._on_listening = self.launcher._on_listening
        recruits.sweep = lambda host, run: self.swept.append(host.name)
        recruits.plan_workers = lambda host: self.planned.append(host.name)
        self.launcher._recruits = recruits

    def hears(self, event: ElasticEvent) -> None:
        self.launcher._on_event(self.host, event)

    @property
    def orders(self) -> list[Any]:
        return [ORDER_DECODER.find(line.rstrip(b"\n")) for line, _ in self.launcher._crew.sent]


def _bare(kind: type[ElasticLauncher]) -> Any:
    """Return a launcher of a kind that was told nothing."""
    return kind.__new__(kind)


class _Connection:
    dismissed = False

    def dismiss(self) -> None:
        self.dismissed = True


class _Files:
    def __init__(self, folder: Path) -> None:
        self.path = folder

    def received(self, ranks: list[int], *, here: bool) -> dict[int, tuple[int, int]]:
        return dict.fromkeys(ranks, (5, 0))


@pytest.mark.parametrize("kind", [ElasticLauncher, AdoptingLauncher])
def test_an_agent_that_answers_late_is_not_counted_as_another(
    kind: type[ElasticLauncher], tmp_path: Path
) -> None:
    called = Called(kind, 1, tmp_path)
    called.hears(AgentListening(9, "relay"))
    (order,) = called.orders
    assert isinstance(order, AttachOrder)
    assert order.received == {1: (5, 0)}
    called.hears(ATTACHED)
    assert (called.host.lives, called.host.agent, called.host.state) == (1, "h2#first", HostState.RUNNING)
    assert called.started == []


@pytest.mark.parametrize("kind", [ElasticLauncher, AdoptingLauncher])
def test_a_host_whose_agent_is_gone_begins_anew(kind: type[ElasticLauncher], tmp_path: Path) -> None:
    called = Called(kind, 1, tmp_path)
    called.hears(AgentListening(9, "new"))
    called.hears(AgentAbsent())
    assert called.started == ["h2"]


@pytest.mark.parametrize("kind", [ElasticLauncher, AdoptingLauncher])
def test_a_host_without_an_agent_does_not_begin_in_a_run_that_was_interrupted(
    kind: type[ElasticLauncher], tmp_path: Path
) -> None:
    called = Called(kind, 1, tmp_path)
    called.hears(AgentListening(9, "new"))
    called.launcher._interrupted = signal.SIGINT
    called.hears(AgentAbsent())
    assert (called.started, called.host.state) == ([], HostState.GONE)
    assert called.launcher._crew.connections["h2"].dismissed


def test_a_witness_that_was_killed_begins_anew_and_nothing_is_swept_beside_it(tmp_path: Path) -> None:
    called = Called(AdoptingLauncher, 1, tmp_path, witness=True)
    called.hears(AgentListening(9, "new"))
    called.hears(AgentAbsent())
    assert (called.started, called.swept, called.planned) == (["h2"], [], [])


def test_a_host_that_never_had_an_agent_begins_at_once(tmp_path: Path) -> None:
    called = Called(ElasticLauncher, 0, tmp_path)
    called.hears(AgentListening(9, "new"))
    assert (called.started, called.orders) == (["h2"], [])
