"""The agents of one run, seen from the launcher: their processes, and the one queue on which they all speak."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import IO, Protocol

from weft.errors import ConnectError
from weft.launch.agent.agent import BEAT_S
from weft.launch.agent.protocol import Message, decode, encode

ROOM = 64  # pieces of output of one host that may wait to be printed; then its workers wait


@dataclass(frozen=True)
class AgentCommand:
    """The command that starts the agent of one host."""

    host: str
    argv: tuple[str, ...]
    remote: bool = False  # reached over a network, which can fall silent without closing


class Explain(Protocol):
    """Turns a failed start of an agent into a sentence a user can act on."""

    def __call__(self, host: str, code: int | None, complaint: str) -> str: ...


class Connection:
    """One agent process, or the ssh client in front of it."""

    def __init__(self, command: AgentCommand, inbox: SimpleQueue[tuple[str, Message]]) -> None:
        self.command = command
        self.host = command.host
        self.heard_at = time.monotonic()
        self.closed = False
        self._inbox = inbox
        self._room = threading.Semaphore(ROOM)
        self._closing = False
        self._lock = threading.Lock()
        # A file, not a pipe: a multiplexing ssh stays behind for the next run and would hold a pipe open.
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with us)
        try:
            self._process = subprocess.Popen(
                command.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,  # Ctrl-C is for the launcher; it tells the agents itself
            )
        except OSError:
            self._complaints.close()
            raise
        self._listening = threading.Thread(target=self._listen, name=f"weft-{self.host}", daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.heard_at = time.monotonic()
                message = decode(line, "event")
                if message is None or message["event"] == "beat":
                    continue
                if message["event"] == "output":
                    self._wait_for_room()
                self._inbox.put((self.host, message))
        self._process.wait()
        self.closed = True
        self._inbox.put((self.host, {"event": "closed"}))

    def _wait_for_room(self) -> None:
        """Or a worker that prints faster than we can would fill our memory, and Ctrl-C would wait its turn."""
        self.heard_at = float("inf")  # the host is not silent: it is we who do not listen
        while not self._closing and not self._room.acquire(timeout=BEAT_S):
            pass
        self.heard_at = time.monotonic()

    def make_room(self) -> None:
        """A piece of output has been taken from the inbox."""
        self._room.release()

    def send(self, message: Message) -> None:
        """Say something; a peer that is gone is noticed by the listening thread."""
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(encode(message))
            self._process.stdin.flush()

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def complaint(self) -> str:
        """What the agent, or ssh, wrote to its standard error."""
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace").strip()

    def dismiss(self) -> None:
        """Let the agent go."""
        self._closing = True
        self.make_room()
        self.send({"do": "bye"})
        with self._lock, contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def close(self, deadline: float) -> None:
        """End an agent that was dismissed if it has not gone by then."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listening.join()
        self._complaints.close()


class AgentPool:
    """All agents of a run. A context: leaving it ends them."""

    def __init__(self, commands: Sequence[AgentCommand], *, explain: Explain) -> None:
        self.inbox: SimpleQueue[tuple[str, Message]] = SimpleQueue()
        self._explain = explain
        self._over = threading.Event()
        self.connections: dict[str, Connection] = {}
        self._beating = threading.Thread(target=self._beat, name="weft-beat", daemon=True)
        self._beating.start()
        try:
            for command in commands:
                self.join(command)
        except BaseException:
            self.close()
            raise

    def join(self, command: AgentCommand) -> None:
        """Start one more agent."""
        try:
            connection = Connection(command, self.inbox)
        except OSError as error:
            raise ConnectError(
                f"{command.argv[0]} must start here to reach {command.host}, got: {error.strerror}; install it"
            ) from error
        # A new table in one step: another thread goes through the old one.
        self.connections = {**self.connections, command.host: connection}

    def forget(self, host: str) -> None:
        """Have nothing more to do with a host that is lost."""
        left = dict(self.connections)
        connection = left.pop(host, None)
        self.connections = left
        if connection is not None:
            connection.dismiss()
            connection.close(time.monotonic())

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            for connection in self.connections.values():
                connection.send({"do": "beat"})

    def hear(self, timeout_s: float) -> tuple[str, Message]:
        """The next thing that any agent said; raises `Empty` when nothing comes."""
        host, message = self.inbox.get(timeout=timeout_s)
        if message["event"] == "output" and host in self.connections:
            self.connections[host].make_room()
        return host, message

    def tell(self, message: Message, hosts: Iterable[str] | None = None) -> None:
        for host in self.connections if hosts is None else hosts:
            self.connections[host].send(message)

    def ask(self, questions: Mapping[str, Message], *, timeout_s: float) -> dict[str, Message]:
        """Put a question to some hosts at once, and wait for all their answers."""
        for host, question in questions.items():
            self.connections[host].send(question)
        return self.await_answers(
            {host: question["do"] for host, question in questions.items()}, timeout_s=timeout_s
        )

    def await_answers(self, awaited: Mapping[str, str], *, timeout_s: float) -> dict[str, Message]:
        """Wait for one event of a given name from each host; every host that fails is named."""
        answers, troubles = self.gather(
            {host: (event,) for host, event in awaited.items()}, timeout_s=timeout_s
        )
        if troubles:
            raise ConnectError("\n".join(troubles[host] for host in awaited if host in troubles))
        return {host: answers[host][event] for host, event in awaited.items()}

    def inquire(
        self, questions: Mapping[str, Sequence[Message]], *, timeout_s: float
    ) -> tuple[dict[str, dict[str, Message]], dict[str, str]]:
        """Put several questions to some hosts at once; what `gather` gives."""
        for host, several in questions.items():
            for question in several:
                self.connections[host].send(question)
        awaited = {host: [question["do"] for question in several] for host, several in questions.items()}
        return self.gather(awaited, timeout_s=timeout_s)

    def gather(
        self, awaited: Mapping[str, Iterable[str]], *, timeout_s: float
    ) -> tuple[dict[str, dict[str, Message]], dict[str, str]]:
        """Wait for events by name from each host: what came, and why some hosts' did not.

        A host is in the one or in the other. An answer is stamped with `heard_s`, our time when it came.
        """
        answers: dict[str, dict[str, Message]] = {host: {} for host in awaited}
        missing = {host: set(events) for host, events in awaited.items()}
        troubles: dict[str, str] = {}
        deadline = time.monotonic() + timeout_s
        while any(missing.values()):
            try:
                host, message = self.hear(max(0.001, deadline - time.monotonic()))
            except Empty:
                for host in (host for host, events in missing.items() if events):
                    troubles[host] = (
                        f"{host} must answer within {timeout_s:g} s, got silence; is it up and not overloaded?"
                    )
                break
            if not missing.get(host):
                continue
            if message["event"] in missing[host]:
                missing[host].remove(message["event"])
                answers[host][message["event"]] = {**message, "heard_s": time.time()}
            elif message["event"] in ("closed", "failed"):
                missing[host].clear()
                failed = message["event"] == "failed"
                troubles[host] = f"{host}: {message['message']}" if failed else self.explain(host)
        return {host: heard for host, heard in answers.items() if host not in troubles}, troubles

    def explain(self, host: str) -> str:
        connection = self.connections[host]
        return self._explain(host, connection.code, connection.complaint())

    def close(self) -> None:
        self._over.set()
        self._beating.join()
        for connection in self.connections.values():
            connection.dismiss()
        deadline = time.monotonic() + 2.0
        for connection in self.connections.values():
            connection.close(deadline)

    def __enter__(self) -> AgentPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
