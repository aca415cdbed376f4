"""Actions that the reactions to a worker ask for, as data; the agent carries them out in their order.

A worker is named by its process id: its name changes when it rejoins the run. Actions are structs because these are
made three times as fast as dataclasses when an agent starts.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.elastic.history.records import StepRecord
from weft.elastic.membership.reports import WorkerState
from weft.elastic.membership.view import View

# -- on one worker, carried out by `HostWorkers` ------------------------------------------------------


class SetState(msgspec.Struct, frozen=True):
    """Track the worker as being in another state."""

    pid: int
    state: WorkerState


class SetPorts(msgspec.Struct, frozen=True):
    """Note the ports on which the worker listens."""

    pid: int
    store_port: int
    heal_port: int


class MarkBroken(msgspec.Struct, frozen=True):
    """Note that the worker has no group in this view."""

    pid: int
    view: int


class MarkLeft(msgspec.Struct, frozen=True):
    """Note that the worker's script has left its loop early, after a number of committed steps."""

    pid: int
    committed: int


class MarkCommit(msgspec.Struct, frozen=True):
    """Note that the worker committed a step in this view; earlier failures in its slot no longer count."""

    pid: int
    view: int
    steps: int  # committed in all


class MarkHealed(msgspec.Struct, frozen=True):
    """Note that the worker has got the state of this many committed steps."""

    pid: int
    steps: int


class MarkSpared(msgspec.Struct, frozen=True):
    """Note that the worker is not ended although it makes no progress."""

    pid: int


class MarkEvicted(msgspec.Struct, frozen=True):
    """Note why this agent ends the worker, so that its end is not reported as another loss."""

    pid: int
    why: str


class MarkOverMemory(msgspec.Struct, frozen=True):
    """Note that this agent ends the worker for the memory it holds: its end counts as a failure, with this sentence."""

    pid: int
    why: str


class MarkRetired(msgspec.Struct, frozen=True):
    """Note that the worker's slot is no longer wanted: nobody takes its place, and its end is no loss."""

    pid: int


class MarkScriptEnded(msgspec.Struct, frozen=True):
    """Note that the script of the worker has come to its end."""

    pid: int


class MarkScriptIsRun(msgspec.Struct, frozen=True):
    """Note that the run is done when the script of the worker ends well."""

    pid: int


class CountAlarm(msgspec.Struct, frozen=True):
    """Note that the worker was taken for stuck: the limits for those that follow are longer."""

    pid: int


class RenameWorker(msgspec.Struct, frozen=True):
    """Give the worker a new name: the view it was a member of went on without it."""

    pid: int


class SendView(msgspec.Struct, frozen=True):
    """Tell the worker of a decided view, and the name under which it may be a member."""

    pid: int
    view: View
    urgent: bool  # the worker must not wait for the end of its step


class SendOver(msgspec.Struct, frozen=True):
    """Tell the worker that the run is finished."""

    pid: int


class AskToLeave(msgspec.Struct, frozen=True):
    """Have the worker leave at the end of its step."""

    pid: int


class KillWorker(msgspec.Struct, frozen=True):
    """Send a signal to the worker's process group."""

    pid: int
    signal: int = signal.SIGKILL


class StartAnother(msgspec.Struct, frozen=True):
    """Start another worker in the worker's slot, after a pause that grows with the ends in a row."""

    pid: int
    after_failure: bool = False  # counts towards giving the slot up


class GiveUpSlot(msgspec.Struct, frozen=True):
    """Start no more workers in the worker's slot."""

    pid: int
    why: str
    code: int  # the exit code of a run that fails because of it


WorkerAction = (
    SetState
    | SetPorts
    | MarkBroken
    | MarkCommit
    | MarkHealed
    | MarkSpared
    | MarkEvicted
    | MarkLeft
    | MarkOverMemory
    | MarkRetired
    | MarkScriptEnded
    | MarkScriptIsRun
    | CountAlarm
    | RenameWorker
    | SendView
    | SendOver
    | AskToLeave
    | KillWorker
    | StartAnother
    | GiveUpSlot
)

# -- on the run, carried out by the agent -------------------------------------------------------------


class WriteEvent(msgspec.Struct, frozen=True):
    """Write an event into the journal; the launcher is told of it as well."""

    name: str
    facts: Mapping[str, Any]


class WriteHeader(msgspec.Struct, frozen=True):
    """Write the header of the ledger into the journal."""

    header: Mapping[str, Any]


class WriteCommit(msgspec.Struct, frozen=True):
    """Write the record of a committed step into the journal."""

    record: StepRecord


class ReportFailure(msgspec.Struct, frozen=True):
    """Tell the launcher why a worker failed after the run was finished."""

    why: str


class EndRun(msgspec.Struct, frozen=True):
    """End the run for all hosts."""

    how: str  # "finished", or why the run failed
    code: int


class CheckSoon(msgspec.Struct, frozen=True):
    """Run the next round of checks at once instead of at its usual time."""


class Broadcast(msgspec.Struct, frozen=True):
    """Send this agent's status to the other agents and to the launcher at once."""


class LeadNow(msgspec.Struct, frozen=True):
    """Decide on the next view at once if this agent leads, and send its status: a worker is lost."""


AgentAction = (
    WriteEvent | WriteHeader | WriteCommit | ReportFailure | EndRun | CheckSoon | Broadcast | LeadNow
)
Reaction = WorkerAction | AgentAction
