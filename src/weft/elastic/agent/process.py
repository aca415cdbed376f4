"""One worker process, as its agent holds it: the link to it, its progress, its output, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence

from weft.elastic.agent.activity import WorkerActivity
from weft.elastic.agent.launcher_messages import WorkerSlot
from weft.elastic.membership.reports import WorkerReport, WorkerState
from weft.elastic.membership.stalls import FIRST_TIME_S, Stall, is_stuck
from weft.elastic.timing import Timing
from weft.elastic.worker.beat import WAITING, BeatPage, WorkerProgress
from weft.elastic.worker.link import DESCRIPTORS
from weft.elastic.worker.messages import FROM_WORKER, DrainWorker, FromWorker, NewView, ToWorker
from weft.launch.agent import processes
from weft.messages import encode
from weft.reporting.names import SLOT_VARIABLE
from weft.reporting.names import VARIABLE as METRICS_VARIABLE

CHUNK_BYTES = 1 << 16  # read from a worker's link or output at a time
TAIL_BYTES = 16_000  # of a worker's standard error that are kept to explain its failure
# Seconds for a worker to form a group, or to find that it cannot: connecting to a peer that has died takes half of
# them, and a busy machine the rest. A worker that is killed too soon takes with it state that it alone may have.
ANSWER_S = 10.0
STEP_S_KEPT = 0.8  # share of the old estimate that stays when a step's duration is measured anew

# Losing a peer is an ordinary event in an elastic run; torch's store would print pages about it.
QUIET_ENV = {"TORCH_CPP_LOG_LEVEL": "ERROR"}


class WorkerProcess:
    """One worker process, started by the constructor."""

    def __init__(
        self, name: str, slot: WorkerSlot, argv: Sequence[str], *, env: Mapping[str, str], cwd: str
    ) -> None:
        self.name, self.slot = name, slot
        self._page = BeatPage()
        self.link, theirs = socket.socketpair()
        self.link.setblocking(False)
        os.set_inheritable(theirs.fileno(), True)
        # Workers beside the launcher write what they log into the run directory themselves.
        points = None if METRICS_VARIABLE in slot.env else processes.ReportPipe()
        self.points = None if points is None else points.ours
        variables = (
            {} if points is None else {METRICS_VARIABLE: points.channel, SLOT_VARIABLE: str(slot.rank)}
        )
        try:
            self.process = processes.spawn(
                argv,
                env={
                    **QUIET_ENV,
                    **os.environ,
                    **env,
                    **slot.env,
                    **variables,
                    DESCRIPTORS: f"{theirs.fileno()},{self._page.descriptor},{os.fstat(theirs.fileno()).st_ino}",
                },
                cwd=cwd,
                cpus=slot.cpus,
                numa=slot.numa,
                keep=(theirs.fileno(), self._page.descriptor, *(() if points is None else (points.theirs,))),
            )
        finally:
            theirs.close()
            if points is not None:
                os.close(points.theirs)
        self._activity = WorkerActivity(self.process.pid)
        self.code: int | None = None  # the exit code, once the process has ended
        self.store_port = self.heal_port = 0
        self.evicted = ""  # why the agent ended this worker
        self.over_memory = False  # the agent ended it for the memory it held
        self.retired = False  # its slot is no longer wanted
        self.script_ended = False
        self.script_is_run = False  # its end, if it is no failure, is that of the run
        self.followed = False  # another worker is started in its slot, even while this one is there
        self.stepped = -1  # the last view in which it committed a step
        self.commit = 0  # steps of the newest commit whose state it holds
        self.spared = False  # it makes no progress, and is not ended because it alone holds that commit
        self._state, self._state_since = WorkerState.STARTING, time.monotonic()
        self._broken, self._broken_at = -1, 0.0
        self._left, self._left_at = -1, 0.0
        self._stderr_tail = b""
        self._unread = b""
        self._unsent = b""
        self._step_s = 0.0  # how long a step usually takes; 0: not known yet
        self._stopped_at: float | None = None
        self._asked_at: float | None = (
            None  # when it was told of an urgent view, if it has said nothing since
        )
        self._counted = (0, self._state_since)  # steps when they were last counted, and the time of that

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.code is None

    @property
    def state(self) -> WorkerState:
        return self._state

    @state.setter
    def state(self, state: WorkerState) -> None:
        if state != self._state:
            self._state, self._state_since = state, time.monotonic()
            self._counted = self._counted[0], self._state_since

    @property
    def leaving_s(self) -> float:
        """Seconds since the worker was asked to leave; 0 if it was not."""
        return time.monotonic() - self._state_since if self._state == WorkerState.LEAVING else 0.0

    @property
    def last_error(self) -> str:
        """The last line that the worker wrote to its standard error."""
        lines = self._stderr_tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def mark_broken(self, view: int) -> None:
        """Note that the worker has no group in this view."""
        self._broken, self._broken_at = view, time.monotonic()

    def mark_left(self, committed: int) -> None:
        """Note that the script of the worker has left its loop after a number of committed steps."""
        self._left, self._left_at = committed, time.monotonic()

    def report(self) -> WorkerReport:
        """Describe the worker to the leader."""
        now = time.monotonic()
        return WorkerReport(
            worker=self.name,
            slot=self.slot.number,
            state=self._state,
            store_port=self.store_port,
            heal_port=self.heal_port,
            since=round(now - self._state_since, 3),
            broken=self._broken,
            broken_for=round(now - self._broken_at, 3),
            commit=self.commit,
            idle_s=round(self._idle_s(now), 3),
            ending=bool(self.evicted),
            stepped=self.stepped,
            left=self._left,
            left_for=round(now - self._left_at, 3) if self._left >= 0 else 0.0,
            waits_s=round(max(0.0, self._page.read().waits_for(now)), 3),
            waiting_s=round(self._waiting_too_long_s(now), 3),
        )

    def _waiting_too_long_s(self, now: float) -> float:
        """Seconds for which the worker has waited for the others beyond what is usual; -1 if it does not wait."""
        waits_s = self._page.read().waits_for(now)
        return max(-1.0, waits_s - 3 * self._step_s if self._step_s else waits_s - FIRST_TIME_S)

    def _idle_s(self, now: float) -> float:
        """Seconds without progress where progress, or an answer, is to be expected."""
        asked_s = now - self._asked_at if self._asked_at is not None else 0.0
        stopped_s = now - self._stopped_at if self._stopped_at is not None else 0.0
        return max(asked_s, stopped_s, self._page.read().stuck_for(now))

    # -- progress ---------------------------------------------------------------------------------

    def progress(self) -> WorkerProgress:
        return self._page.read()

    def find_stuck(self, timing: Timing, *, others_wait_s: float, alarms: int) -> Stall | None:
        """Return the stall of a worker that makes no progress, if it has lasted too long."""
        now = time.monotonic()
        progress = self._page.read()
        self._measure_steps(progress.steps, now)
        if idle_s := self._unresponsive_s(now, timing, waits=progress.phase == WAITING):
            return Stall(idle_s)
        idle_s = progress.stuck_for(now)
        if idle_s < timing.detect_within / 4:  # as in most looks
            self._activity.rest()
            return None
        stall = Stall(
            idle_s,
            self._step_s,
            first_time=progress.lenient,
            computes=self._activity.look(now),
            others_wait_s=others_wait_s,
            alarms=alarms,
        )
        return stall if is_stuck(stall, timing) else None

    def _measure_steps(self, steps: int, now: float) -> None:
        before, since = self._counted
        if steps > before:
            took_s = (now - since) / (steps - before)  # the first time including the forming of the group
            known = self._step_s
            self._step_s = STEP_S_KEPT * known + (1 - STEP_S_KEPT) * took_s if known else took_s
            self._counted = steps, now

    def _unresponsive_s(self, now: float, timing: Timing, *, waits: bool) -> float | None:
        """Return the seconds for which the process was stopped, or did not answer an urgent view, if too many.

        A worker that waits for the others makes no progress of its own, so there is nothing else to judge it by.
        """
        stopped = processes.is_stopped(self.pid)
        self._stopped_at = (self._stopped_at or now) if stopped else None
        if self._stopped_at is not None and now - self._stopped_at > timing.detect_within:
            return now - self._stopped_at
        if waits and self._asked_at is not None and now - self._asked_at > timing.detect_within + ANSWER_S:
            return now - self._asked_at
        return None

    def move_to(self, slot: WorkerSlot) -> None:
        """Have another description of the worker's slot: its cores may have changed with the number of slots."""
        if slot.cpus != self.slot.cpus:
            processes.bind_session(self.pid, slot.cpus)
        self.slot = slot

    # -- link and output --------------------------------------------------------------------------

    def send(self, message: ToWorker) -> None:
        """Send a message; bytes that a stopped worker does not take are kept for it."""
        if isinstance(message, NewView) and message.urgent:
            self._asked_at = self._asked_at or time.monotonic()
        self._unsent += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send what the worker did not take before."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionError):
            while self._unsent:
                self._unsent = self._unsent[self.link.send(self._unsent) :]

    def receive(self) -> tuple[list[FromWorker], bool]:
        """Return the messages that have come, and whether more may follow."""
        data, open_ = _read_all(self.link)
        if data:
            self._asked_at = None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [FROM_WORKER.decode(line) for line in lines], open_

    def keep_output(self, stream: str, data: bytes) -> None:
        """Keep the end of the standard error, which may explain a failure."""
        if stream == "err":
            self._stderr_tail = (self._stderr_tail + data)[-TAIL_BYTES:]

    # -- the end ----------------------------------------------------------------------------------

    def ask_to_leave(self) -> None:
        """Have the worker leave at the end of its step."""
        self.state = WorkerState.LEAVING
        self.send(DrainWorker())

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the worker and to all processes it started."""
        if self.alive:
            processes.signal_group(self.pid, number)
            if number == signal.SIGKILL:
                return
            processes.signal_group(self.pid, signal.SIGCONT)  # a stopped process receives no other signal

    def close(self) -> None:
        """Close the link and the progress page of a process that has ended."""
        self.link.close()
        self._page.close()


def _read_all(link: socket.socket) -> tuple[bytes, bool]:
    """Read what a link that does not block holds by now; return it, and whether the other end is still open."""
    chunks = []
    try:
        while chunk := link.recv(CHUNK_BYTES):
            chunks.append(chunk)
    except BlockingIOError:
        return b"".join(chunks), True
    except OSError:
        pass
    return b"".join(chunks), False
