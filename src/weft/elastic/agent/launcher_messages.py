"""Messages between the launcher of an elastic run and its agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.elastic.membership.reports import AgentAddress, AgentStatus
from weft.elastic.membership.view import View
from weft.launch.agent.protocol import AgentEvent
from weft.launch.agent.wire import decode_event
from weft.messages import Decoder, Message

# -- launcher to agent --------------------------------------------------------------------------------


class ElasticOrder(Message, frozen=True, tag_field="do"):
    """A message of the launcher to an elastic agent."""


@dataclass(frozen=True)
class WorkerSlot:
    """A place for one worker on a host."""

    number: int
    rank: int  # under which the output of its workers is shown
    env: dict[str, str]
    cpus: tuple[int, ...] = ()
    numa: tuple[int, ...] = ()


class AgentSpec(ElasticOrder, frozen=True, kw_only=True, tag="elastic"):
    """The description of the run that an agent begins with: all it needs to go on without its launcher."""

    run: str
    run_dir: str
    host: str
    agent: str  # the name of the agent
    witness: bool  # the agent votes and has no workers
    life: str  # a part of its workers' names that differs for each agent of the host; empty for the first
    address: str  # at which the others reach the agent
    cwd: str
    env: dict[str, str]
    argv: tuple[str, ...]
    slots: tuple[WorkerSlot, ...]
    least: int  # workers that the run needs
    most: int  # workers that the run uses
    expected: int  # workers for which the run was started
    detect_within_s: float
    start_within_s: float
    alone_s: float  # until a host that is cut off from all ends its workers
    slow: str  # the policy for slow workers
    grace_s: float  # for workers to end when they are asked to
    memory_bytes: int = 0  # that each worker may hold; 0: as much as there is
    secret: str
    view: View  # with which the agent begins
    roster: dict[str, AgentAddress]  # the other agents


class RosterUpdate(ElasticOrder, frozen=True, tag="roster"):
    """The addresses of all agents that take part."""

    roster: dict[str, AgentAddress]


class EndOrder(ElasticOrder, frozen=True, tag="over"):
    """The run is over, as another agent has told."""

    how: str
    code: int


class BeginOrder(ElasticOrder, frozen=True, tag="begin"):
    """All agents that had decided on a view are dead: begin anew with this one."""

    view: View


class LeaveOrder(ElasticOrder, frozen=True, tag="leave"):
    """The host is no longer wanted: its workers leave at the end of their step."""


class SlotsOrder(ElasticOrder, frozen=True, tag="slots"):
    """The host has just these slots from now on: workers of others leave at the end of their step, new ones start."""

    slots: tuple[WorkerSlot, ...]
    expected: int  # workers on all hosts, for which a run that has not begun yet waits


class AttachOrder(ElasticOrder, frozen=True, kw_only=True, tag="attach"):
    """A launcher adopts the run, or calls the host again: find its agent on this host.

    To a program that listens and has no run yet.

    Without an agent, the program sends the output that the launcher lacks itself, from what the agent left.
    """

    run: str
    run_dir: str
    host: str
    secret: str
    ranks: tuple[int, ...]  # of the output of the host's slots
    received: dict[int, tuple[int, int]]  # as in CatchUpOrder


class CatchUpOrder(ElasticOrder, frozen=True, tag="catch-up"):
    """A launcher is connected again, and has this much of the output: send the rest, and all that follows."""

    received: dict[int, tuple[int, int]]  # by rank: bytes that its workers printed, bytes that they logged


class PauseOrder(ElasticOrder, frozen=True, tag="pause"):
    """The run is to end at its next checkpoint."""


class StopOrder(ElasticOrder, frozen=True, tag="stop"):
    """The user ends the run."""

    now: bool = False  # workers are killed at once


class OrderBeat(ElasticOrder, frozen=True, tag="beat"):
    """A sign of life."""


class OrderBye(ElasticOrder, frozen=True, tag="bye"):
    """The last order: the launcher sends no more."""


ORDER_DECODER: Decoder[ElasticOrder] = Decoder(
    AgentSpec,
    AttachOrder,
    CatchUpOrder,
    RosterUpdate,
    EndOrder,
    BeginOrder,
    LeaveOrder,
    SlotsOrder,
    PauseOrder,
    StopOrder,
    OrderBeat,
    OrderBye,
)

# -- agent to launcher --------------------------------------------------------------------------------


class ElasticEvent(Message, frozen=True, tag_field="event"):
    """A message of an elastic agent to its launcher."""


class AgentListening(ElasticEvent, frozen=True, tag="hello"):
    """The agent listens for others, and waits for the description of the run."""

    port: int
    token: str  # makes the name of the agent unique


class AgentBegun(ElasticEvent, frozen=True, tag="begun"):
    """The agent takes part in the run."""


class AgentAbsent(ElasticEvent, frozen=True, tag="absent"):
    """A host has no agent of the run, and no journal that tells its end."""


class AgentAttached(ElasticEvent, frozen=True, tag="attached"):
    """The agent was cut off from the launcher, and is connected again; it holds output back until it is caught up."""

    agent: str
    address: str
    port: int
    env: dict[str, str]  # of every worker, for a launcher that does not know it


class StatusEvent(ElasticEvent, frozen=True, tag="status"):
    """The status of the agent."""

    status: AgentStatus


class WorkerExit(ElasticEvent, frozen=True, tag="worker-exit"):
    """A worker has ended."""

    rank: int
    worker: str
    code: int


class JournalEvent(ElasticEvent, frozen=True, tag="news"):
    """An event that the agent wrote into its journal."""

    news: dict[str, Any]


class WorkerFailed(ElasticEvent, frozen=True, tag="worker-failed"):
    """A worker failed after the run was finished."""

    why: str


class AgentDone(ElasticEvent, frozen=True, tag="agent-done"):
    """The agent has seen the end of the run, or has left it."""

    over: str  # how the run ended; empty if it goes on without this host
    code: int


ELASTIC_EVENTS: tuple[type[ElasticEvent], ...] = (
    AgentListening,
    AgentBegun,
    AgentAbsent,
    AgentAttached,
    StatusEvent,
    WorkerExit,
    JournalEvent,
    WorkerFailed,
    AgentDone,
)

_EVENT_DECODER: Decoder[ElasticEvent] = Decoder(*ELASTIC_EVENTS)
_TAGS = tuple(f'{{"event":"{kind.__struct_config__.tag}"'.encode() for kind in ELASTIC_EVENTS)


def read_event(line: bytes) -> AgentEvent | ElasticEvent | None:
    """Return the event in a line of an agent of `weft.launch`, or of the elastic agent that it went on as."""
    return _EVENT_DECODER.decode(line) if line.startswith(_TAGS) else decode_event(line)
