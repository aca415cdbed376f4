"""Actions of a scheduler, and its interface: one class with one method, which looks and decides but changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from weft.tune.study.state import SearchState


@dataclass(frozen=True)
class StartTrial:
    """Start a new trial; the searcher says with which parameters. None: run it to its end."""

    until: int | None = None
    bracket: int = 0


@dataclass(frozen=True)
class ResumeTrial:
    """Let a trial that waits or is paused run on, from its checkpoint: a promotion."""

    trial: int
    until: int | None = None


@dataclass(frozen=True)
class ExtendTrial:
    """Let a running trial go on beyond its limit, without a pause."""

    trial: int
    until: int | None = None


@dataclass(frozen=True)
class PauseTrial:
    """Have a running trial end at its checkpoint; it may be promoted later."""

    trial: int


@dataclass(frozen=True)
class StopTrial:
    """End a trial for good; one that is `cut` by the end of its study goes on if the study does."""

    trial: int
    reason: str = ""
    cut: bool = False


@dataclass(frozen=True)
class CloneTrial:
    """Have a trial go on with the weights of another, and other parameters."""

    trial: int
    source: int
    params: dict[str, Any] = field(default_factory=dict)
    until: int | None = None


TrialAction = StartTrial | ResumeTrial | ExtendTrial | PauseTrial | StopTrial | CloneTrial


@runtime_checkable
class TrialScheduler(Protocol):
    """Decides which trials run. A plug-in is one class of this shape, named by an entry point of weft.tune.schedulers.

    It is made with the options of the study's file. `decide` is called after every change. `free` slots are idle;
    `starts` is how many new trials the budget still allows. A trial that has reached its limit holds its slot until it
    is extended, paused or stopped. The same state must always give the same actions.
    """

    def decide(self, state: SearchState, free: int, starts: int) -> Sequence[TrialAction]: ...
