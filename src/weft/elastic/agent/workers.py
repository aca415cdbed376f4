"""The workers of one host: started in their slots, listened to, ended and replaced.

What follows for the run from their messages and their ends is decided in `reactions.py`.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from weft.collectives.modes.shared_memory import files as shared_files
from weft.elastic.agent.actions import (
    AskToLeave,
    CountAlarm,
    GiveUpSlot,
    KillWorker,
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
    RenameWorker,
    SendOver,
    SendView,
    SetPorts,
    SetState,
    StartAnother,
    WorkerAction,
)
from weft.elastic.agent.journal import Journal
from weft.elastic.agent.launcher_link import BACKLOG_BYTES, LauncherLink
from weft.elastic.agent.launcher_messages import AgentSpec, WorkerExit, WorkerSlot
from weft.elastic.agent.process import CHUNK_BYTES, WorkerProcess
from weft.elastic.agent.reactions import WorkerFacts
from weft.elastic.membership.reports import WorkerReport, WorkerState
from weft.elastic.membership.stalls import Alarms, Stall
from weft.elastic.timing import Timing
from weft.elastic.worker.messages import FromWorker, NewView, PauseWorker, RunFinished, WelcomeWorker
from weft.launch.agent import processes
from weft.launch.agent.memory import MemoryWatch
from weft.launch.agent.protocol import WorkerOutput, WorkerPoints
from weft.launch.agent.wire import bytes_to_text

# Seconds before another worker is started in a slot, by how many workers have ended there in a row.
RESTART_PAUSES_S = (0.0, 1.0, 2.0, 5.0)


class HostWorkers:
    """All workers of one host, by slot.

    `on_message` is called with each message of a worker, `on_end` when its process has ended, with the exit code and
    the facts from before its end. `left_out`: bytes of earlier output that the launcher was not sent, by slot.
    """

    def __init__(
        self,
        spec: AgentSpec,
        journal: Journal,
        launcher: LauncherLink,
        *,
        left_out: Mapping[int, int],
        on_message: Callable[[WorkerFacts, FromWorker], None],
        on_end: Callable[[WorkerFacts, int], None],
    ) -> None:
        self._spec, self._journal, self._launcher = spec, journal, launcher
        self._on_message, self._on_end = on_message, on_end
        self._slots = {slot.number: slot for slot in spec.slots}
        self._processes: dict[int, WorkerProcess] = {}  # by process id
        self._incarnations: defaultdict[int, int] = defaultdict(int)  # names given so far, by slot
        self._ends: defaultdict[int, int] = defaultdict(int)  # workers replaced in a row, by slot
        self._failures: defaultdict[int, int] = defaultdict(int)  # since the last commit, by slot
        self._given_up: dict[
            int, tuple[str, int]
        ] = {}  # by slot: why, and the exit code that follows from it
        self._alarms = Alarms()
        self._memory = MemoryWatch(spec.memory_bytes)
        self._ranks = {slot.number: slot.rank for slot in spec.slots}  # of all slots that there have been
        self._points_sent: defaultdict[int, int] = defaultdict(int)  # bytes that the launcher has, by slot
        # Output waits in the journal until the launcher has caught up: an agent before this one may have left some.
        self._held = bool(spec.life)
        self._dropped = defaultdict(int, left_out)  # bytes of output that it was not sent, by slot
        self._pausing = False  # the run is to end as soon as a step is saved
        self._starting_at: dict[int, float] = {}  # by slot: when the next worker starts there

    # -- what there is ----------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Return whether this host has no worker, and will start none."""
        return not self._processes and not self._starting_at

    @property
    def possible(self) -> int:
        """Return how many workers this host can have."""
        return len(self._slots) - len(self._given_up.keys() & self._slots.keys())

    @property
    def trouble(self) -> tuple[str, int]:
        """Return why a slot was given up, and the exit code of a run that ends because of it; ("", 0) if none was.

        A slot whose script ended with exit code 0 counts if there is no other.
        """
        troubles = [trouble for slot, trouble in self._given_up.items() if slot in self._slots]
        return max(troubles, key=lambda trouble: bool(trouble[1]), default=("", 0))

    def facts(self) -> tuple[WorkerFacts, ...]:
        """The facts on every worker that is alive."""
        return tuple(map(self._facts_of, self._alive()))

    def reports(self) -> tuple[WorkerReport, ...]:
        return tuple(worker.report() for worker in self._alive())

    def micros(self) -> dict[str, tuple[int, float]]:
        """Return how many micro-batches each worker has computed, and in how many seconds."""
        progress = {worker.name: worker.progress() for worker in self._alive()}
        return {name: (each.micros, each.busy_s) for name, each in progress.items()}

    def stuck(self, timing: Timing, waits_s: Mapping[str, float]) -> Iterator[tuple[WorkerFacts, Stall]]:
        """Members that have made no progress for too long; `waits_s`: for how long each member has waited."""
        for worker in self._alive():
            worker.flush()
            if not worker.evicted and worker.state in (WorkerState.MEMBER, WorkerState.LEAVING):
                others = [seconds for name, seconds in waits_s.items() if name != worker.name]
                stall = worker.find_stuck(
                    timing, others_wait_s=min(others, default=0.0), alarms=self._alarms.count
                )
                if stall is not None:
                    yield self._facts_of(worker), stall

    def over_memory(self) -> Iterator[tuple[WorkerFacts, int]]:
        """Workers that hold more memory than they may, and how much; looked for about once a second."""
        alive = {worker.pid: worker for worker in self._alive()}
        for pid, used_bytes in self._memory.look(alive, time.monotonic()).items():
            yield self._facts_of(alive[pid]), used_bytes

    def _alive(self) -> list[WorkerProcess]:
        return [worker for worker in self._processes.values() if worker.alive]

    def _facts_of(self, worker: WorkerProcess) -> WorkerFacts:
        slot = worker.slot.number
        return WorkerFacts(
            pid=worker.pid,
            name=worker.name,
            state=worker.state,
            spared=worker.spared,
            commit=worker.commit,
            evicted=worker.evicted,
            replaceable=not worker.followed and not worker.retired and slot not in self._given_up,
            over_memory=worker.over_memory,
            rank=worker.slot.rank,
            retired=worker.retired,
            script_ended=worker.script_ended,
            script_is_run=worker.script_is_run,
            slot_failures=self._failures[slot],
            slot_ends=self._ends[slot],
            leaving_s=worker.leaving_s,
            last_error=worker.last_error,
        )

    # -- starting ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Start a worker in every slot."""
        processes.become_subreaper()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        for slot in self._slots.values():
            self._start(slot)

    def take_slots(self, slots: Sequence[WorkerSlot]) -> tuple[WorkerFacts, ...] | None:
        """Have just these slots, and start workers in new ones; return the workers of those that are gone.

        None if nothing has changed. Workers that stay are bound to the cores of their slot as it is now.
        """
        before, self._slots = self._slots, {slot.number: slot for slot in slots}
        self._ranks |= {slot.number: slot.rank for slot in slots}
        if self._slots == before:
            return None
        for number in before.keys() - self._slots.keys():
            self._starting_at.pop(number, None)
            self._given_up.pop(number, None)
            self._ends[number] = self._failures[number] = 0
        surplus = [w for w in self._alive() if w.slot.number not in self._slots and not w.retired]
        for worker in self._alive():
            if worker.slot.number in self._slots and not worker.retired:
                worker.move_to(self._slots[worker.slot.number])
        for number in sorted(self._slots.keys() - before.keys()):
            self._start(self._slots[number])
        return tuple(map(self._facts_of, surplus))

    @property
    def slots(self) -> tuple[WorkerSlot, ...]:
        """The places for workers that this host has."""
        return tuple(self._slots.values())

    def start_due(self, *, wanted: bool) -> None:
        """Start the workers whose pause is over; none, and none later, if no more are wanted."""
        now = time.monotonic()
        for number, due in list(self._starting_at.items()):
            if not wanted or number in self._given_up:
                del self._starting_at[number]
            elif now >= due:
                del self._starting_at[number]
                self._start(self._slots[number])

    def _start(self, slot: WorkerSlot) -> None:
        worker = WorkerProcess(
            self._new_name(slot), slot, self._spec.argv, env=self._spec.env, cwd=self._spec.cwd
        )
        self._processes[worker.pid] = worker
        self._journal.event("started", worker=worker.name, pid=worker.pid)
        worker.send(WelcomeWorker(name=worker.name, secret=self._spec.secret, most=self._spec.most))
        if self._pausing:
            worker.send(PauseWorker())
        loop = asyncio.get_running_loop()
        loop.add_reader(worker.link.fileno(), self._receive, worker)
        for pipe, stream in _outputs(worker):
            os.set_blocking(pipe.fileno(), False)
            loop.add_reader(pipe.fileno(), self._forward, worker, pipe, stream)

    def _new_name(self, slot: WorkerSlot) -> str:
        number = self._incarnations[slot.number]
        self._incarnations[slot.number] += 1
        # A host that comes back has an agent with another name, whose workers must not be taken for the old ones.
        return f"{self._spec.host}/{slot.number}.{self._spec.life}{number}"

    # -- acting -----------------------------------------------------------------------------------

    def carry_out(self, action: WorkerAction) -> None:
        """Carry out an action on one worker."""
        worker = self._processes[action.pid]
        slot = worker.slot.number
        match action:
            case SetState(_, state):
                worker.state = state
            case SetPorts(_, store_port, heal_port):
                worker.store_port, worker.heal_port = store_port, heal_port
            case MarkBroken(_, view):
                worker.mark_broken(view)
            case MarkLeft(_, committed):
                worker.mark_left(committed)
            case MarkOverMemory(_, why):
                worker.evicted, worker.over_memory = why, True
            case MarkRetired():
                worker.retired = True
            case MarkScriptEnded():
                worker.script_ended = True
            case MarkScriptIsRun():
                worker.script_is_run = True
            case MarkHealed(_, steps):
                worker.commit = steps
            case MarkSpared():
                worker.spared = True
            case MarkCommit(_, view, steps):
                worker.commit, worker.spared = steps, False
                self._alarms = self._alarms.committed()
                worker.stepped = view
                self._ends[slot] = self._failures[slot] = 0
            case MarkEvicted(_, why):
                worker.evicted = why
            case CountAlarm():
                self._alarms = self._alarms.raised()
            case RenameWorker():
                worker.name = self._new_name(worker.slot)
            case SendView(_, view, urgent):
                worker.send(NewView(view, worker.name, urgent))
            case SendOver():
                worker.send(RunFinished())
            case AskToLeave():
                worker.ask_to_leave()
            case KillWorker(_, number):
                worker.kill(number)
            case StartAnother(_, after_failure):
                self._failures[slot] += after_failure
                self._start_later(worker)
            case GiveUpSlot(_, why, code):
                self._given_up[slot] = why, code

    def _start_later(self, worker: WorkerProcess) -> None:
        """Have another worker started in the slot of this one."""
        slot = worker.slot.number
        worker.followed = True
        self._ends[slot] += 1
        pause_s = RESTART_PAUSES_S[min(self._ends[slot], len(RESTART_PAUSES_S)) - 1]
        self._starting_at[slot] = time.monotonic() + pause_s

    def pause(self) -> None:
        """Tell all workers, those that follow too, that the run is to end as soon as a step is saved."""
        if not self._pausing:
            self._pausing = True
            for worker in self._alive():
                worker.send(PauseWorker())

    def kill(self, *, but: WorkerState | None = None) -> None:
        """Kill all workers at once, except those in the state `but`."""
        for worker in self._alive():
            if worker.state != but:
                worker.kill()

    def close(self) -> None:
        """Kill every process that this agent or its workers have left."""
        processes.kill_descendants(os.getpid())
        shared_files.sweep()

    # -- listening --------------------------------------------------------------------------------

    def _receive(self, worker: WorkerProcess) -> None:
        messages, may_follow = worker.receive()
        if not may_follow:
            asyncio.get_running_loop().remove_reader(worker.link.fileno())
        for message in messages:
            self._on_message(self._facts_of(worker), message)

    def _forward(self, worker: WorkerProcess, pipe: IO[bytes], stream: str) -> None:
        """Pass the output of a worker on to the journal and the launcher."""
        try:
            data = os.read(pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if data and stream == "points":
            self._journal.points(worker.slot.number, data)
            self._send_points(worker.slot.number)
            return
        if data:
            worker.keep_output(stream, data)
            self._journal.output(worker.slot.number, data)
            self._send_output(worker.slot, stream, data)
            return
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()

    def _send_output(self, slot: WorkerSlot, stream: str, data: bytes) -> None:
        output = WorkerOutput(slot.rank, stream, bytes_to_text(data))
        if not self._held and not self._launcher.send(output, may_drop=True):
            self._dropped[slot.number] += len(data)

    def _send_points(self, slot: int) -> None:
        """Send what the journal has of a slot's points beyond what was sent; a backlog is sent with what follows."""
        while not self._held and self._launcher.has_room:
            data = self._journal.read_points(slot, self._points_sent[slot], CHUNK_BYTES)
            if not data:
                return
            self._launcher.send(WorkerPoints(self._ranks[slot], bytes_to_text(data)))
            self._points_sent[slot] += len(data)

    def hold_output(self) -> None:
        """Send no output to a launcher that is connected again, before it has told what it has."""
        self._held = True

    def catch_up(self, received: Mapping[int, tuple[int, int]]) -> None:
        """Send the output that a launcher lacks, from what the journal has; `received`: bytes by rank."""
        self._held = False
        share = BACKLOG_BYTES // max(1, len(self._ranks))
        for slot, rank in self._ranks.items():
            self._points_sent[slot] = received.get(rank, (0, 0))[1]
            self._send_points(slot)
            start = received.get(rank, (0, 0))[0] + self._dropped[slot]
            pieces, lacking = self._journal.output_since(slot, start, share)
            self._dropped[slot] += lacking
            for data in pieces:
                self._launcher.send(WorkerOutput(rank, "out", bytes_to_text(data)))

    def _reap(self) -> None:
        for pid, code in processes.reap():
            worker = self._processes.get(pid)
            if worker is not None:
                try:
                    self._end(worker, code)
                finally:
                    del self._processes[pid]

    def _end(self, worker: WorkerProcess, code: int) -> None:
        """Take in what a worker left when it ended, clean up after it, and say that it has ended."""
        self._receive_the_rest(worker)
        facts = self._facts_of(worker)
        worker.code = worker.process.returncode = code
        worker.state = WorkerState.GONE
        processes.signal_group(worker.pid, signal.SIGKILL)  # what it started and left behind
        asyncio.get_running_loop().remove_reader(worker.link.fileno())
        worker.close()
        shared_files.sweep()  # it may have been killed while it shared memory with others
        self._launcher.send(WorkerExit(worker.slot.rank, worker.name, code))
        self._on_end(facts, code)

    def _receive_the_rest(self, worker: WorkerProcess) -> None:
        """Read what a worker had written before it ended."""
        self._receive(worker)
        for pipe, stream in _outputs(worker):
            while not pipe.closed:
                before = pipe.fileno()
                self._forward(worker, pipe, stream)
                if not pipe.closed and not _readable(before):
                    asyncio.get_running_loop().remove_reader(before)
                    pipe.close()


def _outputs(worker: WorkerProcess) -> tuple[tuple[IO[bytes], str], ...]:
    out, err = worker.process.stdout, worker.process.stderr
    assert out is not None
    assert err is not None
    points = () if worker.points is None else ((worker.points, "points"),)
    return (out, "out"), (err, "err"), *points


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])
