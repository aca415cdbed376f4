"""Reactions of an agent to its workers, pure: an event and the facts go in, actions come out.

Each function takes one event: a message of a worker, the end of its process, a decided view, the end of the run, and
so on. It reads frozen facts and returns a tuple of actions, which the agent carries out in their order.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from weft.elastic.agent.actions import (
    AskToLeave,
    Broadcast,
    CheckSoon,
    CountAlarm,
    EndRun,
    GiveUpSlot,
    KillWorker,
    LeadNow,
    MarkBroken,
    MarkCommit,
    MarkEvicted,
    MarkHealed,
    MarkLeft,
    MarkOverMemory,
    MarkRetired,
    MarkScriptEnded,
    MarkScriptIsRun,
    MarkSpared,
    Reaction,
    RenameWorker,
    ReportFailure,
    SendOver,
    SendView,
    SetPorts,
    SetState,
    StartAnother,
    WriteCommit,
    WriteEvent,
    WriteHeader,
)
from weft.elastic.membership.endings import FINISHED, PAUSED
from weft.elastic.membership.reports import WorkerState
from weft.elastic.membership.stalls import Stall
from weft.elastic.membership.view import View
from weft.elastic.worker.messages import (
    CheckpointSaved,
    DataHeader,
    FromWorker,
    GroupBroken,
    GroupFormed,
    LoopLeft,
    ReadyToJoin,
    RunRefused,
    ScriptEnded,
    ScriptIsRun,
    StepCommitted,
    WorkerFinished,
    WorkerHealed,
    WorkerHello,
    WorkerLeaving,
    WorkerPaused,
)
from weft.launch.agent.memory import describe_excess
from weft.launch.control.outcome import describe_code, shell_code

LIVES = 10  # workers of one slot that may end, however they end, without a commit between them
ENDED_BY_OTHERS = tuple(-number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
SLOT_TRIES = 3  # workers of one slot that may fail without a commit between them before the slot is given up


@dataclass(frozen=True)
class WorkerFacts:
    """One worker process of this host, at the moment of an event."""

    pid: int
    name: str
    state: WorkerState
    rank: int = 0  # under which its output is shown
    spared: bool = False  # it makes no progress, and is not ended because it alone holds the newest commit
    commit: int = 0  # steps of the newest commit whose state the worker holds
    evicted: str = ""  # why this agent ended the worker, or asks it to leave: it is stuck or slow
    replaceable: bool = True  # its slot is not given up, and no other worker was started in its place yet
    slot_failures: int = 0  # workers of its slot that failed since the last commit there
    slot_ends: int = 0  # workers of its slot that were replaced since the last commit there
    over_memory: bool = False  # this agent ended it for the memory it held; `evicted` says so
    retired: bool = False  # its slot is no longer wanted
    script_ended: bool = False  # nothing of its script is left to do
    script_is_run: bool = False  # its script's end, if it is no failure, is the end of the run
    leaving_s: float = 0.0  # seconds since the worker was asked to leave
    last_error: str = ""  # the last line that the worker wrote to its standard error


@dataclass(frozen=True)
class RunFacts:
    """The run, as this agent knows it at the moment of an event."""

    view: View  # the newest that is decided
    over: bool = False
    host_leaves: bool = False  # this host is taken away from the run
    committed: int = 0  # steps


def on_message(worker: WorkerFacts, message: FromWorker, run: RunFacts) -> tuple[Reaction, ...]:
    """React to a message of a worker."""
    match message:
        case WorkerHello(store_port, heal_port):
            return (SetPorts(worker.pid, store_port, heal_port),)
        case DataHeader(header):
            return (WriteHeader(header),)
        case ReadyToJoin():
            return _on_ready(worker, run)
        case GroupBroken(view):
            return MarkBroken(worker.pid, view), CheckSoon()
        case WorkerLeaving():
            return _on_leaving(worker, run)
        case StepCommitted():
            return _on_commit(worker, message)
        case LoopLeft(committed):
            return MarkLeft(worker.pid, committed), CheckSoon(), Broadcast()
        case RunRefused(why, code):
            return (EndRun(why, code),)
        case WorkerFinished():
            return SetState(worker.pid, WorkerState.FINISHED), EndRun(FINISHED.how, FINISHED.code)
        case WorkerPaused():
            return SetState(worker.pid, WorkerState.FINISHED), EndRun(PAUSED.how, PAUSED.code)
        case ScriptEnded():
            return (MarkScriptEnded(worker.pid),)
        case ScriptIsRun():
            return (MarkScriptIsRun(worker.pid),)
        case WorkerHealed():
            return MarkHealed(worker.pid, message.step), _event_of(worker, message)
        case GroupFormed() | CheckpointSaved():
            return (_event_of(worker, message),)
    return ()


def _event_of(worker: WorkerFacts, message: FromWorker) -> WriteEvent:
    """The event that a message of a worker is kept as."""
    facts = message.fields()
    return WriteEvent(facts.pop("say"), {"worker": worker.name, **facts})


def _on_ready(worker: WorkerFacts, run: RunFacts) -> tuple[Reaction, ...]:
    joins = (_detected("join", worker, "it is ready", run.view),) if run.view.members else ()
    return SetState(worker.pid, WorkerState.READY), *joins, CheckSoon(), Broadcast()


def _on_leaving(worker: WorkerFacts, run: RunFacts) -> tuple[Reaction, ...]:
    """React to a worker that was asked to leave by a signal of the user or the system."""
    if run.over:  # the worker has nothing of its own to do when it is ended
        return (KillWorker(worker.pid),)
    if worker.state == WorkerState.LEAVING:
        return ()
    actions = _see_off(worker, "asked to leave", run.view)
    if worker.state != WorkerState.MEMBER:  # it has no step to end, and might hear of no further view
        actions += (KillWorker(worker.pid),)
    return actions


def _on_commit(worker: WorkerFacts, message: StepCommitted) -> tuple[Reaction, ...]:
    record = message.record
    stepped = {"view": record.view, "worker": worker.name, "step": record.step}
    first = (WriteEvent("stepped", stepped),) if message.first else ()
    return MarkCommit(worker.pid, record.view, record.step + 1), *first, WriteCommit(record)


def on_end(worker: WorkerFacts, code: int, run: RunFacts) -> tuple[Reaction, ...]:
    """React to the end of a worker's process; `worker.state` is the state it ended from."""
    if worker.state == WorkerState.FINISHED or run.over:
        in_vain = worker.script_ended and code in ENDED_BY_OTHERS
        failed = bool(code) and worker.state == WorkerState.FINISHED and not in_vain
        return CheckSoon(), *(_failed_at_the_end(worker, code) if failed else ())
    if run.host_leaves or (worker.retired and worker.state in (WorkerState.STARTING, WorkerState.READY)):
        return (CheckSoon(),)
    if worker.state == WorkerState.LEAVING:
        return CheckSoon(), *_replace(worker)
    if code == 0 and worker.script_is_run and not worker.evicted:
        return CheckSoon(), EndRun(FINISHED.how, FINISHED.code)
    lost: tuple[Reaction, ...] = ()
    if not worker.evicted:
        cause = describe_code(code) if code else "its script has ended"
        lost = (_detected("death" if code else "leave", worker, cause, run.view),)
    return CheckSoon(), *lost, *_follow(worker, code, in_vain=not run.committed), LeadNow()


def _failed_at_the_end(worker: WorkerFacts, code: int) -> tuple[Reaction, ...]:
    failed = WriteEvent("failed", {"worker": worker.name, "cause": describe_code(code)})
    return failed, ReportFailure(describe_failure(worker, code))


def _follow(worker: WorkerFacts, code: int, *, in_vain: bool) -> tuple[Reaction, ...]:
    """Start another worker in the place of one that ended; not if it failed before any worker committed a step."""
    if code == 0:
        return (GiveUpSlot(worker.pid, f"{worker.name} ended before the run did", 0),)
    failed = code > 0 or worker.over_memory  # not by a signal of others
    if failed and (in_vain or worker.slot_failures + 1 >= SLOT_TRIES):
        if worker.over_memory:
            return (GiveUpSlot(worker.pid, worker.evicted, shell_code(-signal.SIGKILL)),)
        return (GiveUpSlot(worker.pid, describe_failure(worker, code), code),)
    if worker.slot_ends + 1 >= LIVES:
        return (GiveUpSlot(worker.pid, _describe_lives(worker, code), 1),)
    return (StartAnother(worker.pid, after_failure=failed),) if worker.replaceable else ()


def _describe_lives(worker: WorkerFacts, code: int) -> str:
    """Say that no worker of a slot comes to a commit, and how the last of them ended."""
    last = worker.evicted or describe_code(code)
    return f"{LIVES} workers in a row ended without a committed step, the last, {worker.name}: {last}"


def _replace(worker: WorkerFacts) -> tuple[Reaction, ...]:
    """Start another worker in the place of one that was asked to leave: its host stays, so its slot is free."""
    if not worker.replaceable:
        return ()
    replaced = WriteEvent("replaced", {"worker": worker.name, "cause": "its host is still wanted"})
    return StartAnother(worker.pid), replaced


def on_view(workers: Sequence[WorkerFacts], view: View, *, urgent: bool) -> tuple[Reaction, ...]:
    """React to a decided view: tell all workers that wait for one or take part."""
    actions: list[Reaction] = []
    for worker in workers:
        if worker.state == WorkerState.STARTING:
            continue
        if view.rank_of(worker.name) is not None:
            if worker.state != WorkerState.LEAVING:
                actions.append(SetState(worker.pid, WorkerState.MEMBER))
        elif worker.state == WorkerState.MEMBER:
            # The others went on without this worker: it may come back under a new name.
            actions += [RenameWorker(worker.pid), SetState(worker.pid, WorkerState.STARTING)]
        actions.append(SendView(worker.pid, view, urgent))
    return tuple(actions)


def on_run_over(workers: Sequence[WorkerFacts], view: View, *, how: str) -> tuple[Reaction, ...]:
    """React to the end of the run: workers that are done exit by themselves, the others are asked to, or killed.

    Members of a run that pauses have all saved their last step, and are about to say so.
    """
    finished = how == FINISHED.how
    actions: list[Reaction] = []
    for worker in workers:
        # A worker that is to leave and is still a member is done together with all the others.
        leaving = worker.state == WorkerState.LEAVING and view.rank_of(worker.name) is not None
        alone = worker.script_is_run and worker.state in (WorkerState.STARTING, WorkerState.READY)
        if finished and (worker.state == WorkerState.MEMBER or leaving or alone):
            actions += [SendOver(worker.pid), SetState(worker.pid, WorkerState.FINISHED)]
        elif worker.state in (WorkerState.STARTING, WorkerState.READY):
            actions.append(KillWorker(worker.pid))
        elif worker.state != WorkerState.FINISHED and how != PAUSED.how:
            actions.append(KillWorker(worker.pid, signal.SIGTERM))
    return tuple(actions)


def on_host_leaves(workers: Sequence[WorkerFacts], view: View) -> tuple[Reaction, ...]:
    """React to the loss of this host: members leave at the end of their step, the others are killed."""
    actions: list[Reaction] = []
    for worker in workers:
        if worker.state == WorkerState.MEMBER:
            actions += _see_off(worker, "its host is taken away", view)
        elif worker.state not in (WorkerState.LEAVING, WorkerState.FINISHED):
            actions.append(KillWorker(worker.pid))
    return tuple(actions)


def on_cut_off(workers: Sequence[WorkerFacts]) -> tuple[Reaction, ...]:
    """React to a host that was cut off from all for long: kill its workers, but those that are done."""
    busy = [worker for worker in workers if worker.state != WorkerState.FINISHED]
    return tuple(KillWorker(worker.pid) for worker in busy)


def on_slots_gone(workers: Sequence[WorkerFacts], view: View) -> tuple[Reaction, ...]:
    """React to slots that are no longer wanted: members leave at the end of their step, the others are killed."""
    actions: list[Reaction] = []
    for worker in workers:
        actions.append(MarkRetired(worker.pid))
        if worker.state == WorkerState.MEMBER:
            actions += _see_off(worker, "fewer workers are wanted on its host", view)
        elif worker.state in (WorkerState.STARTING, WorkerState.READY):
            actions.append(KillWorker(worker.pid))
    return tuple(actions)


def on_too_slow(worker: WorkerFacts) -> tuple[Reaction, ...]:
    """React to the leader's verdict that a worker is too slow: it leaves, and no other takes its place."""
    gave_up = GiveUpSlot(worker.pid, f"{worker.name} was too slow", 1)
    return MarkEvicted(worker.pid, "too slow"), gave_up, AskToLeave(worker.pid)


def on_over_memory(
    worker: WorkerFacts, used_bytes: int, limit_bytes: int, view: View
) -> tuple[Reaction, ...]:
    """React to a worker that holds more memory than it may: kill it; what follows is that of a failure."""
    why = describe_excess(f"rank {worker.rank} ({worker.name})", used_bytes, limit_bytes)
    return MarkOverMemory(worker.pid, why), _detected("death", worker, why, view), KillWorker(worker.pid)


def on_stuck(worker: WorkerFacts, stall: Stall, view: View, *, may_end: bool) -> tuple[Reaction, ...]:
    """React to a worker that makes no progress: kill it, and be more patient with those that follow.

    A worker that alone holds the newest commit is waited for instead (`membership/copies.py`).
    """
    why = f"no progress for {stall.idle_s:.1f} s"
    if not may_end:
        cause = f"{why}; it is waited for, because it alone has the state after {worker.commit} steps"
        spared = WriteEvent("spared", {"view": view.number, "worker": worker.name, "cause": cause})
        return () if worker.spared else (MarkSpared(worker.pid), spared)
    if stall.computes:
        why += " though it computes; long work inside the loop belongs into `with run.busy():`"
    detected = _detected("stuck", worker, why, view)
    return MarkEvicted(worker.pid, why), CountAlarm(worker.pid), detected, KillWorker(worker.pid)


def on_clock(
    workers: Sequence[WorkerFacts], view: View, *, grace_s: float, others_stay: bool
) -> tuple[Reaction, ...]:
    """Start another worker beside a member that could not leave within `grace_s`, because it leaves too few behind.

    The last member that has the training state does not go at all: `others_stay` is false for it.
    """
    late = [w for w in workers if w.leaving_s > grace_s and view.rank_of(w.name) is not None]
    return tuple(action for worker in late if others_stay for action in _replace(worker))


def _see_off(worker: WorkerFacts, cause: str, view: View) -> tuple[Reaction, ...]:
    return _detected("leave", worker, cause, view), AskToLeave(worker.pid), CheckSoon(), Broadcast()


def _detected(kind: str, worker: WorkerFacts, cause: str, view: View) -> WriteEvent:
    return WriteEvent("detected", {"view": view.number, "kind": kind, "who": [worker.name], "cause": cause})


def describe_failure(worker: WorkerFacts, code: int) -> str:
    """Say that a worker failed, with its exit code and the last line of its standard error."""
    complaint = f": {worker.last_error}" if worker.last_error else ""
    return f"{worker.name} failed ({describe_code(code)}){complaint}"
