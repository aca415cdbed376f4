"""The agents of one run, seen from the launcher: their processes, and the one queue on which they all speak."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from weft.errors import ConnectError, MessageError
from weft.launch.agent.agent import BEAT_S
from weft.launch.agent.protocol import (
    AgentBeat,
    AgentClosed,
    AgentEvent,
    AgentOrder,
    CommandFailed,
    DismissAgent,
    FilesFound,
    FindFiles,
    FindPort,
    FindRoutes,
    LauncherBeat,
    LinkMeasured,
    MeasureLink,
    OpenProbePort,
    PortFound,
    ProbePortOpened,
    ReachTargets,
    RoutesFound,
    TargetsReached,
    WorkerOutput,
    WorkerPoints,
)
from weft.launch.agent.wire import decode_event, encode
from weft.launch.control.escapes import strip_escapes

if TYPE_CHECKING:
    from weft.messages import Message

ROOM = 64  # pieces of output of one host that may wait to be printed; then its workers wait
ANSWERS: Mapping[type[AgentOrder], type[AgentEvent]] = {
    FindFiles: FilesFound,
    FindRoutes: RoutesFound,
    OpenProbePort: ProbePortOpened,
    ReachTargets: TargetsReached,
    MeasureLink: LinkMeasured,
    FindPort: PortFound,
}

# An event of an agent, or of the program that it went on as.
PoolEvent: TypeAlias = "AgentEvent | Message"
ReadEvent: TypeAlias = Callable[[bytes], "PoolEvent | None"]
A = TypeVar("A")


@dataclass(frozen=True)
class AgentCommand:
    """The command that starts the agent of one host."""

    host: str
    argv: tuple[str, ...]
    remote: bool = False  # reached over a network, which can fall silent without closing


class Explain(Protocol):
    """Turns a failed start of an agent into a sentence a user can act on."""

    def __call__(self, host: str, code: int | None, complaint: str) -> str: ...


@dataclass(frozen=True)
class HostAnswers:
    """The answers of one host to several questions, each with the time at which it came."""

    events: dict[type, PoolEvent] = field(default_factory=dict)  # by their types
    heard_s: dict[type, float] = field(default_factory=dict)  # by the types of the events

    def of(self, kind: type[A]) -> A:
        """Return the answer of one type."""
        event = self.events[kind]
        assert isinstance(event, kind)
        return event


class Connection:
    """One agent process, or the ssh client in front of it."""

    def __init__(
        self, command: AgentCommand, inbox: SimpleQueue[tuple[str, PoolEvent]], read: ReadEvent
    ) -> None:
        self._read = read
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
                event = self._event_in(line)
                if event is None or isinstance(event, AgentBeat):
                    continue
                if isinstance(event, WorkerOutput | WorkerPoints):
                    self._wait_for_room()
                self._inbox.put((self.host, event))
        self._process.wait()
        self.closed = True
        self._inbox.put((self.host, AgentClosed()))

    def _event_in(self, line: bytes) -> PoolEvent | None:
        try:
            return self._read(line)
        except MessageError as error:
            return CommandFailed("be understood", str(error), 1)

    def _wait_for_room(self) -> None:
        """Wait until the inbox has room: a worker that prints fast would fill it, and Ctrl-C would wait."""
        self.heard_at = float("inf")  # the host is not silent: it is we who do not listen
        while not self._closing and not self._room.acquire(timeout=BEAT_S):
            pass
        self.heard_at = time.monotonic()

    def make_room(self) -> None:
        """Note that a piece of output was taken from the inbox."""
        self._room.release()

    def send(self, order: AgentOrder) -> None:
        """Send a command; an agent that is gone is noticed by the listening thread."""
        self.send_line(encode(order))

    def send_line(self, line: bytes) -> None:
        """Send a message that is encoded already."""
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def complaint(self) -> str:
        """Return what the agent, or ssh, wrote to its standard error."""
        self._complaints.seek(0)
        return strip_escapes(self._complaints.read()).decode(errors="replace").strip()

    def dismiss(self) -> None:
        """Let the agent go."""
        self._closing = True
        self.make_room()
        self.send(DismissAgent())
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
    """All agents of a run. A context: leaving it ends them.

    `read` turns a line of an agent into an event; agents that go on as another program may have events of their own.
    """

    def __init__(
        self, commands: Sequence[AgentCommand], *, explain: Explain, read: ReadEvent = decode_event
    ) -> None:
        self.inbox: SimpleQueue[tuple[str, PoolEvent]] = SimpleQueue()
        self._explain, self._read = explain, read
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
            connection = Connection(command, self.inbox, self._read)
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
                connection.send(LauncherBeat())

    def hear(self, timeout_s: float) -> tuple[str, PoolEvent]:
        """Return the next event of any host; raise `Empty` when none comes."""
        host, event = self.inbox.get(timeout=timeout_s)
        if isinstance(event, WorkerOutput | WorkerPoints) and host in self.connections:
            self.connections[host].make_room()
        return host, event

    def tell(self, order: AgentOrder, hosts: Iterable[str] | None = None) -> None:
        """Send a command to some hosts, or to all."""
        self.tell_line(encode(order), hosts)

    def tell_line(self, line: bytes, hosts: Iterable[str] | None = None) -> None:
        """Send a message that is encoded already to some hosts, or to all."""
        for host in self.connections if hosts is None else hosts:
            self.connections[host].send_line(line)

    def ask(self, questions: Mapping[str, AgentOrder], kind: type[A], *, timeout_s: float) -> dict[str, A]:
        """Put a question to some hosts at once, and wait for the answers of all of them, which are of this type."""
        for host, question in questions.items():
            self.connections[host].send(question)
        return self.await_answers(questions, kind, timeout_s=timeout_s)

    def await_answers(self, hosts: Iterable[str], kind: type[A], *, timeout_s: float) -> dict[str, A]:
        """Wait for one event of this type from each host; every host that fails is named."""
        awaited = dict.fromkeys(hosts, (kind,))
        answers, troubles = self.gather(awaited, timeout_s=timeout_s)
        if troubles:
            raise ConnectError("\n".join(troubles[host] for host in awaited if host in troubles))
        return {host: answers[host].of(kind) for host in awaited}

    def inquire(
        self, questions: Mapping[str, Sequence[AgentOrder]], *, timeout_s: float
    ) -> tuple[dict[str, HostAnswers], dict[str, str]]:
        """Put several questions to some hosts at once, and return what `gather` gives."""
        for host, several in questions.items():
            for question in several:
                self.connections[host].send(question)
        awaited = {
            host: [ANSWERS[type(question)] for question in several] for host, several in questions.items()
        }
        return self.gather(awaited, timeout_s=timeout_s)

    def gather(
        self, awaited: Mapping[str, Iterable[type]], *, timeout_s: float
    ) -> tuple[dict[str, HostAnswers], dict[str, str]]:
        """Wait for events of some types from each host: what came, and why that of some hosts did not.

        A host is in the one or in the other.
        """
        answers = {host: HostAnswers() for host in awaited}
        missing = {host: set(kinds) for host, kinds in awaited.items()}
        troubles: dict[str, str] = {}
        deadline = time.monotonic() + timeout_s
        while any(missing.values()):
            try:
                host, event = self.hear(max(0.001, deadline - time.monotonic()))
            except Empty:
                for host in (host for host, kinds in missing.items() if kinds):
                    troubles[host] = (
                        f"{host} must answer within {timeout_s:g} s, got silence; is it up and not overloaded?"
                    )
                break
            if not missing.get(host):
                continue
            if type(event) in missing[host]:
                missing[host].remove(type(event))
                answers[host].events[type(event)] = event
                answers[host].heard_s[type(event)] = time.time()
            elif isinstance(event, CommandFailed):
                missing[host].clear()
                troubles[host] = f"{host}: {event.message}"
            elif isinstance(event, AgentClosed):
                missing[host].clear()
                troubles[host] = self.explain(host)
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
