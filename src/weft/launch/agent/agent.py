"""The agent: one short-lived process on each host of a run, started by the launcher.

The agent starts the workers of its host, passes on what they print, reports how they end, and sees to it that none of
them outlives the run. It listens on no port: commands come on its standard input. When that ends (the launcher died)
or falls silent (the cable was cut), the agent ends everything below it and itself.

Only the standard library is imported, so that an agent starts in tens of milliseconds; torch never is.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from weft.collectives.modes.shared_memory import files as shared_files
from weft.errors import MessageError
from weft.launch.agent import processes
from weft.launch.agent.memory import MemoryWatch
from weft.launch.agent.protocol import (
    AgentBeat,
    AgentEvent,
    AgentOrder,
    BecomeProgram,
    CommandFailed,
    DismissAgent,
    FilesFound,
    FindFiles,
    FindPort,
    FindRoutes,
    HostSurveyed,
    HostUsed,
    LauncherBeat,
    MeasureLink,
    OpenProbePort,
    PortFound,
    ProbePortOpened,
    ReachTargets,
    RoutesFound,
    StartWorkers,
    StopWorkers,
    TargetsReached,
    WatchUsage,
    WorkerExited,
    WorkerOutput,
    WorkerOverMemory,
    WorkerPoints,
    WorkersDone,
    WorkersStarted,
    WorkerTask,
)
from weft.launch.agent.wire import bytes_to_text, decode_order, encode, order_name
from weft.reporting.names import VARIABLE as METRICS_VARIABLE

if TYPE_CHECKING:
    from socket import socket

BEAT_S = 0.5  # between two signs of life
ORPHAN_GRACE_S = 1.0  # between the polite and the forced end of workers whose launcher is gone
CHUNK_BYTES = 1 << 16  # read from a pipe at once


@dataclass
class RunningWorker:
    """One process that the agent started; its exit code once it has ended."""

    rank: int
    process: subprocess.Popen[bytes]
    code: int | None = None


@dataclass
class Attempt:
    """One attempt at running the workers of this host."""

    number: int
    memory: MemoryWatch
    workers: dict[int, RunningWorker] = field(default_factory=dict)  # by process id
    kill_at: float | None = None  # monotonic seconds; workers that were asked to end are then ended by force

    @property
    def over(self) -> bool:
        return all(worker.code is not None for worker in self.workers.values())


class Agent:
    """Carries out the launcher's commands; see `protocol.py` for them."""

    def __init__(self, *, lost_after_s: float | None) -> None:
        self._lost_after_s = lost_after_s
        self._commands: SimpleQueue[AgentOrder] = SimpleQueue()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._sending = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._current: Attempt | None = None
        self._open_pipes = 0
        self._dismissed = False
        self._next_beat = 0.0
        self._prober: socket | None = None  # where probes are answered, until workers start

    def serve(self) -> None:
        """Work until the launcher says bye."""
        processes.become_subreaper()
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: self._abandon())
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        threading.Thread(target=self._hear, daemon=True).start()
        while not self._dismissed:
            self._turn()
        if self._current is not None:  # the launcher gave up, on an error of its own, say
            self._abandon()

    # -- hearing ----------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Read the launcher's commands; a silence or an end of file is the end of the run.

        It runs in a thread of its own: the main one may be blocked writing to a launcher that is no longer there.
        """
        pending = b""
        while True:
            ready, _, _ = select.select([0], [], [], self._lost_after_s)
            data = os.read(0, CHUNK_BYTES) if ready else b""
            if not data:
                self._abandon()
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                try:
                    command = decode_order(line)
                except MessageError as error:
                    self._send(CommandFailed("read a command", str(error), 1))
                    continue
                if command is not None and not isinstance(command, LauncherBeat):
                    self._commands.put(command)
                    os.write(self._wake_write, b"c")

    def _abandon(self) -> None:
        """End every process below this one, and this one: the launcher is gone."""
        for pid in processes.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while time.monotonic() < deadline and processes.descendants(os.getpid()):
            time.sleep(0.02)
        processes.kill_descendants(os.getpid())
        shared_files.sweep()
        os._exit(1)

    # -- the loop ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._until_next()):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, CHUNK_BYTES)
            else:
                self._forward(key.fileobj, *key.data)
        while not self._commands.empty():
            self._obey(self._commands.get())
        self._collect()
        now = time.monotonic()
        self._watch_memory(now)
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._send(AgentBeat())

    def _until_next(self) -> float:
        deadlines = [self._next_beat]  # looks at memory need no time of their own: beats are more frequent
        if self._current and self._current.kill_at is not None:
            deadlines.append(self._current.kill_at)
        return max(0.0, min(deadlines) - time.monotonic())

    def _forward(self, pipe: Any, rank: int, stream: str) -> None:
        data = os.read(pipe.fileno(), CHUNK_BYTES)
        if data:
            text = bytes_to_text(data)
            self._send(WorkerPoints(rank, text) if stream == "points" else WorkerOutput(rank, stream, text))
        else:
            self._selector.unregister(pipe)
            pipe.close()
            self._open_pipes -= 1

    def _forward_ready(self, timeout_s: float | None = 0.0) -> None:
        """Pass on what the pipes of workers hold, a piece of each."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is not None:
                self._forward(key.fileobj, *key.data)

    def _collect(self) -> None:
        """Report the workers that have ended; after the last of them, end what they left behind."""
        current = self._current
        ended = processes.reap()
        if ended:  # its last words are in its pipes by now, and are told before its end
            self._forward_ready()
        for pid, code in ended:
            worker = current.workers.get(pid) if current else None
            if worker is not None:  # the rest are orphans we adopted
                worker.code = worker.process.returncode = code
                self._send(WorkerExited(worker.rank, code))
        if current is None:
            return
        if not current.over:
            if current.kill_at is not None and time.monotonic() >= current.kill_at:
                current.kill_at = None
                self._force(current)
            return
        processes.kill_descendants(os.getpid())
        shared_files.sweep()
        while self._open_pipes:  # all writers are dead, so this ends
            self._forward_ready(None)
        self._current = None
        self._send(WorkersDone(current.number))

    def _watch_memory(self, now: float) -> None:
        """End workers that hold more memory than they may."""
        current = self._current
        if current is None:
            return
        alive = [pid for pid, worker in current.workers.items() if worker.code is None]
        for pid, used_bytes in current.memory.look(alive, now).items():
            rank = current.workers[pid].rank
            self._send(WorkerOverMemory(rank, used_bytes, current.memory.limit_bytes))
            processes.signal_group(pid, signal.SIGKILL)

    def _force(self, current: Attempt) -> None:
        for worker in current.workers.values():
            if worker.code is None:
                processes.signal_group(worker.process.pid, signal.SIGKILL)
        for pid in processes.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    # -- obeying ----------------------------------------------------------------------------------

    def _obey(self, command: AgentOrder) -> None:
        try:
            self._carry_out(command)
        except Exception as error:  # whatever went wrong here, the launcher must hear of it
            code = 127 if isinstance(error, FileNotFoundError) else 1
            self._send(CommandFailed(order_name(command), f"{error}", code))

    def _carry_out(self, command: AgentOrder) -> None:
        match command:
            case StartWorkers():
                self._start(command)
            case StopWorkers():
                self._stop(command)
            case WatchUsage():
                threading.Thread(target=self._watch_usage, args=(command.run_id,), daemon=True).start()
            case DismissAgent():
                self._dismissed = True
            case BecomeProgram():
                # With the same streams: the launcher waits for the first message of the other program.
                os.execv(sys.executable, [sys.executable, "-P", "-m", command.module])
            case FindFiles():
                self._find_files(command)
            case FindRoutes() | FindPort():
                self._answer_about_network(command)
            case OpenProbePort() | ReachTargets() | MeasureLink():
                self._probe(command)

    def _start(self, command: StartWorkers) -> None:
        if self._current is not None:
            raise RuntimeError(f"attempt {self._current.number} is still running")
        self._stop_answering_probes()
        current = Attempt(command.attempt, MemoryWatch(command.memory_bytes))
        self._current = current
        for task in command.workers:
            process = self._spawn(task, {**os.environ, **command.env, **task.env}, command.cwd)
            current.workers[process.pid] = RunningWorker(task.rank, process)
        self._send(WorkersStarted(command.attempt, tuple(current.workers)))

    def _spawn(self, task: WorkerTask, env: dict[str, str], cwd: str) -> subprocess.Popen[bytes]:
        """Start one worker, and listen to its output; to what it logs, too, unless it has another way to tell that."""
        points = None if METRICS_VARIABLE in task.env else processes.ReportPipe()
        if points is not None:
            env[METRICS_VARIABLE] = points.channel
        keep = () if points is None else (points.theirs,)
        try:
            process = processes.spawn(task.argv, env=env, cwd=cwd, cpus=task.cpus, numa=task.numa, keep=keep)
        except BaseException:
            if points is not None:
                points.ours.close()
            raise
        finally:
            if points is not None:
                os.close(points.theirs)
        pipes: list[tuple[Any, str]] = [(process.stdout, "out"), (process.stderr, "err")]
        if points is not None:
            pipes.append((points.ours, "points"))
        for pipe, stream in pipes:
            self._selector.register(pipe, selectors.EVENT_READ, (task.rank, stream))
            self._open_pipes += 1
        return process

    def _stop_answering_probes(self) -> None:
        """Close the port of the checks, which are over: nobody shall find it while workers run."""
        if self._prober is not None:
            from weft.launch.agent import probes

            probes.stop(self._prober)
            self._prober = None

    def _stop(self, command: StopWorkers) -> None:
        current = self._current
        if current is None:
            return
        for worker in current.workers.values():
            if worker.code is None:
                processes.signal_group(worker.process.pid, command.signal)
        current.kill_at = time.monotonic() + command.grace_s

    def _watch_usage(self, run_id: str) -> None:
        """Tell the launcher what the run uses of this host, until the agent ends."""
        from weft.launch.agent.sweep import marker
        from weft.launch.agent.usage import SAMPLE_S, UsageSampler, now_ms

        sampler = UsageSampler(marker(run_id))
        while True:
            values = sampler.sample(time.monotonic())
            if values is not None:
                self._send(HostUsed(now_ms(), values))
            time.sleep(SAMPLE_S)

    def send_survey(self) -> None:
        """Describe this host to the launcher."""
        from weft.launch.agent.survey import survey

        self._send(HostSurveyed(survey()))

    def _find_files(self, command: FindFiles) -> None:
        folder, script = command.cwd or "/", command.script
        there = script is None or os.path.isfile(os.path.join(folder, script))
        self._send(FilesFound(cwd=os.path.isdir(folder), script=there, clock_s=time.time()))

    def _answer_about_network(self, command: FindRoutes | FindPort) -> None:
        from weft.ports import free_port, is_free
        from weft.topology.network import source_address

        if isinstance(command, FindRoutes):
            self._send(RoutesFound(tuple(source_address(address) for address in command.to)))
        elif command.port is None:
            self._send(PortFound(free_port(), free=True))
        else:
            self._send(PortFound(command.port, free=is_free(command.port)))

    def _probe(self, command: OpenProbePort | ReachTargets | MeasureLink) -> None:
        """Answer, or send, probes; those that take a while in a thread, for workers must not wait for them."""
        from weft.launch.agent import probes

        def work() -> None:
            if isinstance(command, ReachTargets):
                self._send(TargetsReached(probes.reach(command.targets, command.timeout_s)))
            elif isinstance(command, MeasureLink):
                self._send(probes.measure(command.address, command.port, command.seconds))

        if isinstance(command, OpenProbePort):
            self._prober = self._prober or probes.serve()
            self._send(ProbePortOpened(self._prober.getsockname()[1]))
        else:
            threading.Thread(target=work, daemon=True).start()

    def _send(self, event: AgentEvent) -> None:
        data = encode(event)
        with self._sending, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(1, data) :]


def main(arguments: Sequence[str]) -> None:
    """`python -m weft.launch.agent.agent [--survey] [--lost-after SECONDS]`; the launcher is the only caller."""
    lost = arguments.index("--lost-after") + 1 if "--lost-after" in arguments else None
    agent = Agent(lost_after_s=float(arguments[lost]) if lost else None)
    if "--survey" in arguments:
        agent.send_survey()
    agent.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
