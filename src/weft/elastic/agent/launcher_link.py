"""The agent's link to its launcher: one JSON object a line, over standard input and output at first.

The launcher may be gone, or there but not reading. Neither may hold up the agent, so messages wait in memory, and those
that are only to be shown are dropped when too much waits.

A launcher that was cut off, and reaches the host again, finds the agent it had started there: the agent listens on an
abstract socket, named after the run and the host, that goes with the process. Any user of the host may take that name
once the agent is gone, so each end sees that the other is a process of the same user, and has it prove that it knows
the secret of the run, before anything is said. The process that the launcher starts anew relays lines between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial

from weft.elastic.agent.launcher_messages import ORDER_DECODER, ElasticEvent, ElasticOrder, OrderBeat
from weft.errors import ConnectError, MessageError
from weft.launch.agent.protocol import HostUsed, WorkerOutput, WorkerPoints
from weft.launch.agent.wire import encode as encode_output
from weft.messages import encode
from weft.secret import admit, greet

BACKLOG_BYTES = (
    8 << 20
)  # unsent bytes above which output of workers is dropped; at four times as many, all messages
CHUNK_BYTES = 1 << 16  # read at a time
LONGEST_LINE_BYTES = 64 << 20
DRAIN_S = 2.0  # for a launcher to take the last messages of an agent
PROOF_S = 5.0  # for a launcher that comes back to prove that it knows the secret of the run
REFUSED_WITHIN_S = PROOF_S / 2  # an end that does not know the secret says so at once
PROOF_TRIES = 3  # a starved host may take longer than that, and must not be given a second agent for it
LOOK_S = 0.2  # between two looks whether the launcher is still there


class LauncherLink:
    """The connection of an agent to its launcher, which may be lost and attached again."""

    def __init__(self) -> None:
        self._in, self._out = 0, 1  # descriptors
        self._connection: socket.socket | None = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._closed = False  # nothing can be sent any more, until the launcher comes back
        self.lost = False  # nothing will be received any more, until the launcher comes back
        self.heard_at = time.monotonic()  # a launcher that lives sends a beat twice a second
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue()  # lines; None: the launcher is gone
        self._unread = b""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(1, False)
        self._open()

    def attach(self, connection: socket.socket) -> None:
        """Go on with a launcher that was lost and has come back; what waited for it, it will ask for."""
        self._loop.remove_writer(self._out)
        self._loop.remove_reader(self._in)
        if self._connection is not None:
            self._connection.close()
        self._connection = connection
        self._in = self._out = connection.fileno()
        self._unsent.clear()
        self._unsent_bytes, self._closed, self.lost, self._unread = 0, False, False, b""
        self.heard_at = time.monotonic()
        self._open()

    def _open(self) -> None:
        os.set_blocking(self._in, False)
        try:
            self._loop.add_reader(self._in, self._read)
        except PermissionError:  # a file or /dev/null: nothing will come
            self._received.put_nowait(None)

    def _read(self) -> None:
        try:
            data = os.read(self._in, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lost = True
            self._loop.remove_reader(self._in)
            self._received.put_nowait(None)
            return
        self.heard_at = time.monotonic()
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._received.put_nowait(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """The launcher's messages as they came, until it is gone."""
        while (line := await self._received.get()) is not None:
            yield line

    async def orders(self) -> AsyncIterator[ElasticOrder]:
        """The launcher's messages that ask for something, until it is gone."""
        async for line in self.lines():
            try:
                order = ORDER_DECODER.find(line)
            except MessageError as error:  # of another version of Weft: the run must not end for it
                print(f"weft: {error}", file=sys.stderr, flush=True)
                continue
            if order is not None and not isinstance(order, OrderBeat):
                yield order

    @property
    def has_room(self) -> bool:
        """Return whether a message that may not be dropped can be sent now."""
        return not self._closed and self._unsent_bytes <= BACKLOG_BYTES

    def send(
        self, message: ElasticEvent | WorkerOutput | WorkerPoints | HostUsed, *, may_drop: bool = False
    ) -> bool:
        """Send a message without waiting; return False if it is dropped, as too much waits already."""
        limit = BACKLOG_BYTES if may_drop else 4 * BACKLOG_BYTES
        if self._unsent_bytes > limit:
            return False
        if not self._closed:
            self.send_line(encode(message) if isinstance(message, ElasticEvent) else encode_output(message))
        return True

    def send_line(self, line: bytes) -> None:
        """Send a message that is encoded already, without waiting."""
        if self._closed:
            return
        self._unsent.append(line)
        self._unsent_bytes += len(line)
        if len(self._unsent) == 1:
            self._write()

    def _write(self) -> None:
        self._loop.remove_writer(self._out)
        try:
            while self._unsent:
                data = self._unsent[0]
                count = os.write(self._out, data)
                self._unsent_bytes -= count
                if count < len(data):
                    self._unsent[0] = data[count:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._out, self._write)
        except OSError:
            self._closed = True
            self._unsent.clear()
            self._unsent_bytes = 0

    async def await_room(self) -> None:
        """Wait while so much is unsent that output would be dropped."""
        while self._unsent_bytes > BACKLOG_BYTES and not self._closed:
            await asyncio.sleep(0.01)

    async def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Wait until all is sent, for `timeout_s` at most."""
        deadline = self._loop.time() + timeout_s
        while self._unsent and not self._closed and self._loop.time() < deadline:
            await asyncio.sleep(0.01)


# -- after a cut --------------------------------------------------------------------------------------


def listen_for_launcher(run: str, host: str) -> socket.socket | None:
    """Listen for a launcher that comes back; None where another agent of the run listens, or without such sockets."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_socket_name(run, host))
    except OSError:
        listener.close()
        return None
    listener.listen()
    listener.setblocking(False)
    return listener


async def accept_launcher(listener: socket.socket, secret: str) -> socket.socket | None:
    """Accept a connection, if it comes from a process of the same user that knows the secret of the run."""
    try:
        connection, _ = listener.accept()
    except OSError:
        return None
    connection.settimeout(PROOF_S)
    return await _proven(connection, partial(admit, connection, secret))


async def connect_to_agent(run: str, host: str, secret: str, launcher: LauncherLink) -> socket.socket | None:
    """Connect to the agent of the run that is on this host already; None if none is.

    An agent that was stopped answers when it goes on; until then it has the run, and is waited for. Raises
    ConnectError if the launcher goes first.
    """
    for _ in range(PROOF_TRIES):
        began_s = time.monotonic()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(_socket_name(run, host))
        except OSError:
            connection.close()
            return None
        proven = await _proven_to_agent(connection, secret, launcher)
        if proven is not None or time.monotonic() - began_s < REFUSED_WITHIN_S:
            return proven
    return None


async def _proven_to_agent(
    connection: socket.socket, secret: str, launcher: LauncherLink
) -> socket.socket | None:
    """Return a connection to an agent once both ends have proven themselves; None if one of them could not."""
    proving = asyncio.ensure_future(_proven(connection, partial(greet, connection, secret)))
    while not proving.done() and not launcher.lost:
        await asyncio.wait({proving}, timeout=LOOK_S)
    if not proving.done():
        connection.shutdown(socket.SHUT_RDWR)  # ends the wait for a proof
        await proving
        raise ConnectError("an agent that has the run must answer before its launcher goes, got no answer")
    return await proving


async def _proven(connection: socket.socket, prove: Callable[[], None]) -> socket.socket | None:
    """Return a connection whose other end is of this user and has proven itself; otherwise close it."""
    proven = False
    try:
        if _user_of(connection) in (0, os.getuid()):
            # In a thread: the other end may take its time, and this one has workers to look after.
            await asyncio.get_running_loop().run_in_executor(None, prove)
            proven = True
    except (OSError, ConnectError):
        pass
    finally:
        if not proven:
            connection.close()
    return connection if proven else None


def _user_of(connection: socket.socket) -> int:
    """Return the user of the process that opened the other end of a connection."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    user: int = struct.unpack("iII", credentials)[1]
    return user


async def relay(launcher: LauncherLink, agent: socket.socket) -> None:
    """Relay messages between a launcher and the agent it had lost, until one of them goes."""
    reader, writer = await asyncio.open_unix_connection(sock=agent, limit=LONGEST_LINE_BYTES)
    to_agent = asyncio.create_task(_relay_to_agent(launcher, writer))
    with contextlib.suppress(OSError):
        to_launcher = asyncio.create_task(_relay_to_launcher(reader, launcher))
        await asyncio.wait({to_agent, to_launcher}, return_when=asyncio.FIRST_COMPLETED)
        to_launcher.cancel()
    to_agent.cancel()
    writer.close()
    await launcher.drain()


async def _relay_to_agent(launcher: LauncherLink, writer: asyncio.StreamWriter) -> None:
    async for line in launcher.lines():
        writer.write(line + b"\n")


async def _relay_to_launcher(reader: asyncio.StreamReader, launcher: LauncherLink) -> None:
    while line := await reader.readline():
        launcher.send_line(line)
        await launcher.await_room()  # the agent has bounds of its own


def is_agent_here(run: str, host: str) -> bool:
    """Return whether an agent of the run listens on this machine."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(_socket_name(run, host))
        except OSError:
            return False
    return True


def _socket_name(run: str, host: str) -> str:
    return "\0weft-elastic-" + hashlib.sha256(f"{run}/{host}".encode()).hexdigest()[:32]
