"""The agent: one short-lived process on each host of a run, started by the launcher.

It starts that host's workers, passes on what they print, reports how they end, and sees to it that
none of them outlives the run. It listens on no port: it hears the launcher on its standard input. When
that ends (the launcher died) or falls silent (the cable was cut), it ends everything below it and goes.

Only the standard library is imported, so that it starts in tens of milliseconds; torch never is.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from weft.launch.agent import processes
from weft.launch.agent.protocol import Message, bytes_to_text, decode, encode

BEAT_S = 0.5
ORPHAN_GRACE_S = 1.0  # between the polite and the forced end when the launcher is gone
CHUNK_BYTES = 1 << 16


@dataclass
class Worker:
    """One process we started, and whether it has ended."""

    rank: int
    process: subprocess.Popen[bytes]
    code: int | None = None


@dataclass
class Round:
    """One attempt at running this host's workers."""

    attempt: int
    workers: dict[int, Worker] = field(default_factory=dict)  # by process id
    kill_at: float | None = None  # when politeness ends

    @property
    def over(self) -> bool:
        return all(worker.code is not None for worker in self.workers.values())


class Agent:
    """Carries out the launcher's words; see `protocol.py` for them."""

    def __init__(self, *, lost_after_s: float | None) -> None:
        self._lost_after_s = lost_after_s
        self._commands: SimpleQueue[Message] = SimpleQueue()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._sending = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._round: Round | None = None
        self._open_pipes = 0
        self._bye = False
        self._next_beat = 0.0
        self._probe_port: int | None = None

    def serve(self) -> None:
        """Work until the launcher says bye."""
        processes.become_subreaper()
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: self._abandon())
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        threading.Thread(target=self._hear, daemon=True).start()
        while not self._bye:
            self._turn()
        if self._round is not None:  # the launcher gave up, on an error of its own, say
            self._abandon()

    # -- hearing ----------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Read the launcher's words; a silence or an end of file is the end of the run.

        A thread of its own: the main one may be blocked writing to a launcher that is no longer there.
        """
        pending = b""
        while True:
            ready, _, _ = select.select([0], [], [], self._lost_after_s)
            data = os.read(0, CHUNK_BYTES) if ready else b""
            if not data:
                self._abandon()
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                message = decode(line, "do")
                if message is not None and message["do"] != "beat":
                    self._commands.put(message)
                    os.write(self._wake_write, b"c")

    def _abandon(self) -> None:
        """The launcher is gone: end every process below us, and ourselves."""
        for pid in processes.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while time.monotonic() < deadline and processes.descendants(os.getpid()):
            time.sleep(0.02)
        processes.kill_descendants(os.getpid())
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
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._send({"event": "beat"})

    def _until_next(self) -> float:
        deadlines = [self._next_beat]
        if self._round and self._round.kill_at is not None:
            deadlines.append(self._round.kill_at)
        return max(0.0, min(deadlines) - time.monotonic())

    def _forward(self, pipe: Any, rank: int, stream: str) -> None:
        data = os.read(pipe.fileno(), CHUNK_BYTES)
        if data:
            self._send({"event": "output", "rank": rank, "stream": stream, "text": bytes_to_text(data)})
        else:
            self._selector.unregister(pipe)
            pipe.close()
            self._open_pipes -= 1

    def _collect(self) -> None:
        """Note who has ended; when all have, sweep what they left and say done."""
        current = self._round
        for pid, code in processes.reap():
            worker = current.workers.get(pid) if current else None
            if worker is not None:  # the rest are orphans we adopted
                worker.code = worker.process.returncode = code
                self._send({"event": "exit", "rank": worker.rank, "code": code})
        if current is None:
            return
        if not current.over:
            if current.kill_at is not None and time.monotonic() >= current.kill_at:
                current.kill_at = None
                self._force(current)
            return
        processes.kill_descendants(os.getpid())
        while self._open_pipes:  # all writers are dead, so this ends
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._forward(key.fileobj, *key.data)
        self._round = None
        self._send({"event": "done", "attempt": current.attempt})

    def _force(self, current: Round) -> None:
        for worker in current.workers.values():
            if worker.code is None:
                processes.signal_group(worker.process.pid, signal.SIGKILL)
        for pid in processes.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    # -- obeying ----------------------------------------------------------------------------------

    def _obey(self, message: Message) -> None:
        arguments = dict(message)
        handler: Callable[..., None] = getattr(self, "_do_" + arguments.pop("do"))
        try:
            handler(**arguments)
        except Exception as error:  # whatever went wrong here, the launcher must hear of it
            code = 127 if isinstance(error, FileNotFoundError) else 1
            self._send({"event": "failed", "during": message["do"], "message": f"{error}", "code": code})

    def _do_start(self, attempt: int, cwd: str, env: dict[str, str], workers: list[dict[str, Any]]) -> None:
        if self._round is not None:
            raise RuntimeError(f"attempt {self._round.attempt} is still running")
        current = Round(attempt)
        self._round = current
        for item in workers:
            process = processes.spawn(
                item["argv"],
                env={**os.environ, **env, **item["env"]},
                cwd=cwd,
                cpus=item["cpus"],
                numa=item["numa"],
            )
            current.workers[process.pid] = Worker(item["rank"], process)
            for pipe, stream in ((process.stdout, "out"), (process.stderr, "err")):
                assert pipe is not None
                self._selector.register(pipe, selectors.EVENT_READ, (item["rank"], stream))
                self._open_pipes += 1
        started = {worker.rank: pid for pid, worker in current.workers.items()}
        self._send({"event": "started", "attempt": attempt, "pids": started})

    def _do_stop(self, signal: int, grace_s: float) -> None:
        current = self._round
        if current is None:
            return
        for worker in current.workers.values():
            if worker.code is None:
                processes.signal_group(worker.process.pid, signal)
        current.kill_at = time.monotonic() + grace_s

    def _do_bye(self) -> None:
        self._bye = True

    def _do_become(self, module: str) -> None:
        """Go on as another program, with the same streams: the launcher waits for its first word."""
        os.execv(sys.executable, [sys.executable, "-P", "-m", module])

    def _do_survey(self) -> None:
        from weft.launch.agent.survey import survey

        self._send({"event": "survey", **survey().to_json()})

    def _do_look(self, cwd: str | None, script: str | None) -> None:
        folder = Path(cwd or "/")
        self._send(
            {
                "event": "look",
                "cwd": folder.is_dir(),
                "script": script is None or (folder / script).is_file(),
                "clock_s": time.time(),
            }
        )

    def _do_route(self, to: list[str]) -> None:
        from weft.topology.network import source_address

        self._send({"event": "route", "sources": [source_address(address) for address in to]})

    def _do_port(self, port: int | None) -> None:
        from weft.ports import free_port, is_free

        self._send({"event": "port", "port": free_port() if port is None else port, "free": is_free(port)})

    def _do_listen(self) -> None:
        from weft.launch.agent import probes as links

        if self._probe_port is None:
            self._probe_port = links.serve()
        self._send({"event": "listen", "port": self._probe_port})

    def _do_reach(self, targets: list[tuple[str, str, int]], timeout_s: float) -> None:
        from weft.launch.agent import probes as links

        def work() -> None:
            self._send({"event": "reach", "results": links.reach(targets, timeout_s)})

        threading.Thread(target=work, daemon=True).start()

    def _do_measure(self, address: str, port: int, seconds: float) -> None:
        from weft.launch.agent import probes as links

        def work() -> None:
            self._send({"event": "measure", **links.measure(address, port, seconds)})

        threading.Thread(target=work, daemon=True).start()

    def _send(self, message: Message) -> None:
        data = encode(message)
        with self._sending, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(1, data) :]


def main(arguments: Sequence[str]) -> None:
    """`python -m weft.launch.agent.agent [--survey] [--lost-after SECONDS]`; the launcher is the only caller."""
    lost = arguments.index("--lost-after") + 1 if "--lost-after" in arguments else None
    agent = Agent(lost_after_s=float(arguments[lost]) if lost else None)
    if "--survey" in arguments:
        agent._do_survey()
    agent.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
