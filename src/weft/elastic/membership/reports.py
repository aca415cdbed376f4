"""Reports of the agents on themselves and their workers: the facts from which the leader decides who takes part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkerState(StrEnum):
    """The stages of a worker's life, as its agent tracks them."""

    STARTING = "starting"  # the process runs, and has not yet asked to take part
    READY = "ready"  # it waits for a view that it is a member of
    MEMBER = "member"
    LEAVING = "leaving"  # it was asked to leave at the end of its step
    FINISHED = "finished"  # it has done all steps of the run
    GONE = "gone"  # the process has ended


@dataclass(frozen=True)
class WorkerReport:
    """One worker, as its agent sees it."""

    worker: str
    slot: int
    state: WorkerState
    store_port: int = 0
    heal_port: int = 0
    since: float = 0.0  # seconds for which the worker has been in that state
    broken: int = -1  # the view whose group the worker could not form, or lost
    broken_for: float = 0.0  # seconds since the worker said so
    commit: int = 0  # steps of the newest commit whose state the worker holds
    idle_s: float = 0.0  # seconds without progress where progress is to be expected
    ending: bool = False  # its agent has ended it, or asks it to leave
    stepped: int = -1  # the last view in which the worker committed a step: it has the training state
    left: int = -1  # committed steps after which the worker left its loop early; -1: it has not
    left_for: float = 0.0  # seconds since then
    waits_s: float = 0.0  # seconds for which the worker has waited for the others; 0: it does not wait
    waiting_s: float = -1.0  # the same beyond what is usual; -1: it does not wait

    @property
    def has_state(self) -> bool:
        """Return whether the worker has committed a step, in any view, and so has the training state."""
        return self.stepped >= 0


@dataclass(frozen=True)
class AgentReport:
    """One agent and the workers of its host."""

    agent: str
    host: str
    address: str
    workers: tuple[WorkerReport, ...] = ()
    witness: bool = False  # the agent votes and has no workers, so that either of two hosts may be lost


@dataclass(frozen=True)
class AgentAddress:
    """The host of an agent, and the address and port at which it listens; port 0: it only calls."""

    host: str
    address: str
    port: int


@dataclass(frozen=True, kw_only=True)
class AgentStatus:
    """All that an agent tells the other agents and the launcher of itself, again and again."""

    report: AgentReport
    view: int  # the number of the newest view that the agent knows
    voters: tuple[str, ...]  # of that view
    over: str  # how the run ended; empty while it goes on
    code: int  # the exit code of a run that is over
    possible: int  # workers that the host can have
    trouble: tuple[
        str, int
    ]  # why a slot was given up, and the exit code that follows from it; ("", 0) if none was
    micros: dict[str, tuple[int, float]]  # by worker: micro-batches computed, and the seconds they took
    round_trip_s: dict[str, float]  # by agent
    roster: dict[str, AgentAddress]  # all agents that this one knows, itself included
