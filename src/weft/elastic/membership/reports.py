"""Reports of the agents on their workers: the facts from which the leader decides who takes part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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
    state: str  # a WorkerState
    store_port: int = 0
    heal_port: int = 0
    since: float = 0.0  # seconds for which the worker has been in that state
    broken: int = -1  # the view whose group the worker could not form, or lost
    broken_for: float = 0.0  # seconds since the worker said so
    stepped: int = -1  # the last view in which the worker committed a step: it has the training state
    waiting_s: float = -1.0  # seconds for which the worker has waited for the others; -1: it does not wait

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class AgentReport:
    """One agent and the workers of its host."""

    agent: str
    host: str
    address: str
    workers: tuple[WorkerReport, ...] = ()
    witness: bool = False  # the agent votes and has no workers, so that either of two hosts may be lost

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "workers": [worker.to_json() for worker in self.workers]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> AgentReport:
        return cls(**{**data, "workers": tuple(WorkerReport(**worker) for worker in data["workers"])})
