"""The conductor hears what agents tell in any order that a network and a busy machine give it."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from queue import Empty
from typing import Any, cast
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st
from tests.launch.sites import sites

from weft.launch.agent.protocol import AgentClosed, WorkerExited, WorkerOutput, WorkersDone
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.control.agents import AgentCommand, AgentPool, PoolEvent
from weft.launch.control.conductor import Conductor, tasks_of
from weft.launch.control.console import Console
from weft.launch.control.outcome import LAST_WORDS_S, Outcome
from weft.launch.plan import LaunchPlan, make_plan
from weft.topology.hostlist import parse_hosts

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: bad\n'
# Seconds between two events as the launcher hears them: at once, soon, and after whatever it waits for.
GAPS_S = st.sampled_from([0.0, 1e-6, 0.01, 0.6, LAST_WORDS_S + 1])


@dataclass(frozen=True)
class Heard:
    """One event, the time since the one before it, and whether nothing else waits in the inbox then."""

    host: str
    event: PoolEvent
    gap_s: float = 0.0
    alone: bool = True


@dataclass
class _FakeConnection:
    command: AgentCommand
    heard_at: float = float("inf")  # it is never silent


@dataclass
class _FakeInbox:
    alone: bool = True

    def empty(self) -> bool:
        return self.alone


@dataclass
class _FakePool:
    """Agents that have said everything already; the clock goes on with what they said."""

    script: list[Heard]
    connections: dict[str, _FakeConnection]
    inbox: _FakeInbox = field(default_factory=_FakeInbox)
    told: list[Any] = field(default_factory=list)
    now: float = 100.0

    def hear(self, timeout_s: float) -> tuple[str, PoolEvent]:
        if not self.script:
            self.now += timeout_s
            raise Empty
        heard = self.script.pop(0)
        self.now += heard.gap_s
        self.inbox.alone = heard.alone
        return heard.host, heard.event

    def tell(self, order: Any, hosts: Any = None) -> None:
        self.told.append(order)

    def explain(self, host: str) -> str:
        return f"{host} has gone"

    def monotonic(self) -> float:
        return self.now


@cache
def plan_of(per_host: int) -> LaunchPlan:
    """Return a plan for two hosts."""
    config = LaunchConfig(
        command=Command("command", "true"), hosts=parse_hosts("h1,h2"), per_host=per_host, pin=False
    )
    return make_plan(config, sites(2), engine="ssh", port=29400, python=sys.executable)


def outcome_of(script: Sequence[Heard], per_host: int = 1) -> Outcome:
    """Return how a run ends whose agents say this."""
    plan = plan_of(per_host)
    names = [host.name for host in plan.hosts]
    pool = _FakePool(
        list(script), {name: _FakeConnection(AgentCommand(name, (), remote=True)) for name in names}
    )
    console = Console(plan.world_size, out=io.BytesIO(), err=io.BytesIO())
    conductor = Conductor(
        plan,
        cast("AgentPool", pool),
        tasks_of(plan),
        console,
        run_id="run",
        grace_s=1.0,
        lost_after_s=5.0,
        sweep=lambda host: None,
    )
    with patch("weft.launch.control.conductor.time", pool):
        return conductor.run()


def test_a_traceback_that_comes_behind_the_exit_of_its_rank_is_told_with_the_failure() -> None:
    """The pipe of a worker may be read after the worker was reaped, and the others were told to end by then."""
    outcome = outcome_of(
        [
            Heard("h2", WorkerExited(1, 1)),
            Heard("h2", WorkerOutput(1, "err", TRACEBACK), gap_s=0.01),
            Heard("h2", WorkersDone(0)),
            Heard("h1", WorkerExited(0, 0)),
            Heard("h1", WorkersDone(0)),
        ]
    )
    assert outcome.code == 1
    assert outcome.failure is not None
    assert outcome.failure.rank == 1
    assert outcome.failure.reason == "ValueError: bad"


def test_a_rank_whose_end_was_not_told_is_a_failure() -> None:
    script = [Heard("h1", WorkerExited(0, 0)), Heard("h1", WorkersDone(0)), Heard("h2", WorkersDone(0))]
    outcome = outcome_of(script)
    assert outcome.code == 1
    assert outcome.failure is not None
    assert "rank 1" in outcome.failure.reason


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[Heard], bool]:
    """Draw what the agents of two hosts say, in one of its orders, and whether all went well."""
    streams: list[list[tuple[str, PoolEvent]]] = []
    well = True
    for number, name in enumerate(("h1", "h2")):
        said: list[PoolEvent] = []
        for rank in (2 * number, 2 * number + 1):
            code = draw(st.sampled_from([0, 0, 0, 1, -9, -15]))
            own: list[PoolEvent] = [WorkerExited(rank, code)]
            for _ in range(draw(st.integers(0, 2))):
                stream = draw(st.sampled_from(["out", "err"]))
                text = draw(st.sampled_from(["well\n", TRACEBACK]))
                own.insert(draw(st.integers(0, len(own))), WorkerOutput(rank, stream, text))
            said = _mixed(draw, said, own)
            well &= code == 0
        said.append(WorkersDone(0))
        if draw(st.integers(0, 9)) == 0:  # the host is lost on the way
            said = said[: draw(st.integers(0, len(said) - 1))]
            well = False
        said.append(AgentClosed())
        streams.append([(name, event) for event in said])
    order = _mixed(draw, *streams)
    return [Heard(name, event, draw(GAPS_S), draw(st.booleans())) for name, event in order], well


def _mixed(draw: st.DrawFn, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return two lists as one, each in its own order."""
    left, right, found = list(first), list(second), []
    while left or right:
        from_left = draw(st.booleans())
        found.append((left if not right or (left and from_left) else right).pop(0))
    return found


@given(scripts())
@example(([Heard(host, WorkersDone(0)) for host in ("h1", "h2")], False))
def test_a_run_ends_with_0_if_and_only_if_every_rank_has(drawn: tuple[list[Heard], bool]) -> None:
    """Whatever the order, and whenever the launcher takes its time: the law of exit codes."""
    script, well = drawn
    outcome = outcome_of(script, per_host=2)
    assert (outcome.code == 0) == well
    assert (outcome.failure is None) == well
