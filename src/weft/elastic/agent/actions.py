"""Actions that the reactions to a worker ask for, as data; the agent carries them out in their order.

A worker is named by its process id: its name changes when it rejoins the run.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.elastic.membership.reports import WorkerState
from weft.elastic.membership.view import View

# -- on one worker, carried out by `HostWorkers` ------------------------------------------------------


@dataclass(frozen=True)
class SetState:
    """Track the worker as being in another state."""

    pid: int
    state: WorkerState


@dataclass(frozen=True)
class SetPorts:
    """Note the ports on which the worker listens."""

    pid: int
    store_port: int
    heal_port: int


@dataclass(frozen=True)
class MarkBroken:
    """Note that the worker has no group in this view."""

    pid: int
    view: int


@dataclass(frozen=True)
class MarkCommit:
    """Note that the worker committed a step in this view; earlier failures in its slot no longer count."""

    pid: int
    view: int


@dataclass(frozen=True)
class MarkEvicted:
    """Note why this agent ends the worker, so that its end is not reported as another loss."""

    pid: int
    why: str


@dataclass(frozen=True)
class RenameWorker:
    """Give the worker a new name: the view it was a member of went on without it."""

    pid: int


@dataclass(frozen=True)
class SendView:
    """Tell the worker of a decided view, and the name under which it may be a member."""

    pid: int
    view: View
    urgent: bool  # the worker must not wait for the end of its step


@dataclass(frozen=True)
class SendOver:
    """Tell the worker that the run is finished."""

    pid: int


@dataclass(frozen=True)
class AskToLeave:
    """Have the worker leave at the end of its step."""

    pid: int


@dataclass(frozen=True)
class KillWorker:
    """Send a signal to the worker's process group."""

    pid: int
    signal: int = signal.SIGKILL


@dataclass(frozen=True)
class StartAnother:
    """Start another worker in the worker's slot, after a pause that grows with the ends in a row."""

    pid: int
    after_failure: bool = False  # counts towards giving the slot up


@dataclass(frozen=True)
class GiveUpSlot:
    """Start no more workers in the worker's slot."""

    pid: int
    why: str
    code: int  # the exit code of a run that fails because of it


WorkerAction = (
    SetState
    | SetPorts
    | MarkBroken
    | MarkCommit
    | MarkEvicted
    | RenameWorker
    | SendView
    | SendOver
    | AskToLeave
    | KillWorker
    | StartAnother
    | GiveUpSlot
)

# -- on the run, carried out by the agent -------------------------------------------------------------


@dataclass(frozen=True)
class WriteEvent:
    """Write an event into the journal; the launcher is told of it as well."""

    name: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class WriteHeader:
    """Write the header of the ledger into the journal."""

    header: Mapping[str, Any]


@dataclass(frozen=True)
class WriteCommit:
    """Write the record of a committed step into the journal."""

    record: Mapping[str, Any]


@dataclass(frozen=True)
class ReportFailure:
    """Tell the launcher why a worker failed after the run was finished."""

    why: str


@dataclass(frozen=True)
class EndRun:
    """End the run for all hosts."""

    how: str  # "finished", or why the run failed
    code: int


@dataclass(frozen=True)
class CheckSoon:
    """Run the next round of checks at once instead of at its usual time."""


@dataclass(frozen=True)
class Broadcast:
    """Send this agent's status to the other agents and to the launcher at once."""


@dataclass(frozen=True)
class LeadNow:
    """Decide on the next view at once if this agent leads, and send its status: a worker is lost."""


AgentAction = (
    WriteEvent | WriteHeader | WriteCommit | ReportFailure | EndRun | CheckSoon | Broadcast | LeadNow
)
Reaction = WorkerAction | AgentAction
