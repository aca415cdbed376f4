"""The links between the agents of a run: one connection for each pair, kept up as long as both live.

Every agent listens; of each pair the one with the smaller name calls. A witness calls all and is called by none: the
machine it is on may be out of reach. Both ends prove that they know the run's secret. A message that is sent
while there is no connection is lost: what matters is repeated when the two meet again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from weft.elastic.agent.peer_messages import PEER_DECODER, StatusBeat
from weft.elastic.membership.reports import AgentAddress, AgentStatus
from weft.errors import MessageError
from weft.messages import Message, encode
from weft.secret import NONCE_BYTES, PROOF_BYTES, is_proof, nonce, proof

BACKLOG_BYTES = (
    4 << 20
)  # unsent bytes above which a peer counts as not reading: what waits for it is out of date
LONGEST_LINE_BYTES = 64 << 20
ROUND_TRIPS = 15  # remembered of each peer
# Errors of a connection after which a peer is called again.
BROKEN_CONNECTION = (OSError, EOFError, ValueError, MessageError, asyncio.TimeoutError)
GREET_S = 5.0  # for both ends of a new connection to prove themselves
DRAIN_S = 0.5  # for a peer to take the last messages of an agent that ends
LAST_CALLS = 10  # to a peer that may be dead
LAST_CALL_S = 0.05  # for which a peer that took such a call must keep it open to count as alive


class PeerListener(Protocol):
    """The owner of the links, which is told what happens on them: an agent, or a test."""

    def met(self, peer: str) -> None:
        """Called when a connection to this peer begins."""
        ...

    def on_message(self, peer: str, message: Message) -> None:
        """Called with each message of this peer."""
        ...

    def on_disconnect(self, peer: str) -> None:
        """Called when the connection to this peer broke."""
        ...

    def on_death(self, peer: str) -> None:
        """Called when the process of this peer has ended, which is proven."""
        ...


@dataclass
class _Peer:
    """One other agent, and the connection to it."""

    name: str
    where: AgentAddress
    writer: asyncio.StreamWriter | None = None
    heard_at: float = field(default_factory=time.monotonic)
    dead: bool = False
    dropped: bool = False  # this end gave the connection up: messages of the peer may be lost
    calling: asyncio.Task[None] | None = None
    stamp: tuple[float, float] | None = None  # the peer's clock when it last sent, and this host's on receipt
    round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=ROUND_TRIPS))


class Peers:
    """All other agents of the run, and the connections to them."""

    def __init__(
        self, name: str, secret: str, listener: PeerListener, *, retry_s: float, calls_all: bool = False
    ) -> None:
        self.name, self._secret, self._listener, self._retry_s = name, secret, listener, retry_s
        self._calls_all = calls_all
        self._closed = False
        self._peers: dict[str, _Peer] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- who there is -----------------------------------------------------------------------------

    def add(self, name: str, where: AgentAddress) -> None:
        """Learn of an agent. Without a port, it calls this end; with one, the agent with the smaller name calls."""
        if name == self.name or name in self._peers:
            return
        peer = self._peers[name] = _Peer(name, where)
        if where.port and (self._calls_all or self.name < name):
            peer.calling = self._start(self._call(peer))

    def roster(self) -> dict[str, AgentAddress]:
        return {name: peer.where for name, peer in self._peers.items() if not peer.dead}

    def silent_for(self, name: str) -> float:
        """Return the seconds since the last message of a peer; infinity if it is dead or unknown."""
        peer = self._peers.get(name)
        return float("inf") if peer is None or peer.dead else time.monotonic() - peer.heard_at

    def send(self, name: str, message: Message) -> None:
        """Send a message without waiting; it is lost if there is no connection."""
        peer = self._peers.get(name)
        if peer is None or peer.writer is None or peer.writer.is_closing():
            return
        if peer.writer.transport.get_write_buffer_size() > BACKLOG_BYTES:
            self._drop(peer)
            return
        peer.writer.write(encode(message))

    def beat(self, status: AgentStatus) -> None:
        """Send the status of this agent to all, with its clock and the age of theirs: they learn the round trip."""
        now = time.monotonic()
        echoes = {p.name: (p.stamp[0], now - p.stamp[1]) for p in self._peers.values() if p.stamp is not None}
        self.send_all(StatusBeat(status, now, echoes))

    def round_trip_s(self) -> dict[str, float]:
        """Return the usual round trip to each peer, where enough of them were measured."""
        full = [
            peer for peer in self._peers.values() if len(peer.round_trips) == ROUND_TRIPS and not peer.dead
        ]
        return {peer.name: median(peer.round_trips) for peer in full}

    def _measure(self, peer: _Peer, beat: StatusBeat) -> None:
        now = time.monotonic()
        peer.stamp = beat.stamp, now
        if (echo := beat.echoes.get(self.name)) is not None:
            peer.round_trips.append(now - echo[0] - echo[1])

    def send_all(self, message: Message) -> None:
        for name in self._peers:
            self.send(name, message)

    def excuse(self, seconds: float) -> None:
        """Do not count these seconds as silence of the peers: this process stood still meanwhile."""
        now = time.monotonic()
        for peer in self._peers.values():
            peer.heard_at = min(now, peer.heard_at + seconds)

    def drop_silent(self, silence_s: float) -> None:
        """Give up connections without messages, to call anew: TCP itself would retry the old one ever more rarely."""
        for name, peer in self._peers.items():
            if peer.writer is not None and not peer.dropped and self.silent_for(name) > silence_s:
                self._drop(peer)

    @staticmethod
    def _drop(peer: _Peer) -> None:
        assert peer.writer is not None
        peer.dropped = True
        peer.writer.transport.abort()

    async def close(self) -> None:
        """Let the peers take what was sent, then close all connections."""
        for peer in self._peers.values():
            if peer.writer is not None:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await asyncio.wait_for(peer.writer.drain(), DRAIN_S)
                peer.writer.close()
        self._closed = True
        while self._tasks:  # before Python 3.12, wait_for may swallow a cancellation
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.05)

    # -- calling and being called -----------------------------------------------------------------

    async def _call(self, peer: _Peer) -> None:
        """Keep a connection to this peer until it is known to be dead."""
        while not peer.dead and not self._closed:
            began = time.monotonic()
            try:
                reader, writer = await asyncio.wait_for(
                    asyncio.open_connection(peer.where.address, peer.where.port, limit=LONGEST_LINE_BYTES),
                    max(1.0, 4 * self._retry_s),
                )
            except ConnectionRefusedError:
                # The host is up and nobody listens there: the process has ended, and with it its workers.
                self._mark_dead(peer)
                return
            except (TimeoutError, OSError):
                pass
            else:
                with contextlib.suppress(*BROKEN_CONNECTION):
                    await asyncio.wait_for(self._greet(reader, writer), GREET_S)
                    await self._talk(peer, reader, writer)
                writer.close()
            await asyncio.sleep(max(0.0, self._retry_s - (time.monotonic() - began)))

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours = nonce()
        writer.write(ours)
        theirs = await reader.readexactly(NONCE_BYTES)
        shown = await reader.readexactly(PROOF_BYTES)
        if not is_proof(shown, self._secret, "server", ours, theirs):
            raise ValueError("not of this run")
        writer.write(proof(self._secret, "client", theirs, ours))
        writer.write(self.name.encode() + b"\n")

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with an agent that calls. The connection of one that is not known yet is closed: it calls again."""
        with contextlib.suppress(*BROKEN_CONNECTION):
            name = await asyncio.wait_for(self._admit(reader, writer), GREET_S)
            peer = self._peers.get(name)
            if peer is not None and not peer.dead:
                await self._talk(peer, reader, writer)
        writer.close()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        theirs = await reader.readexactly(NONCE_BYTES)
        ours = nonce()
        writer.write(ours + proof(self._secret, "server", theirs, ours))
        if not is_proof(await reader.readexactly(PROOF_BYTES), self._secret, "client", ours, theirs):
            raise ValueError("not of this run")
        return (await reader.readline()).decode().strip()

    async def _talk(self, peer: _Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive the messages of a peer until the connection ends."""
        _send_at_once(writer)
        if peer.writer is not None:  # the peer called again: the old connection is broken
            peer.writer.transport.abort()
            self._part(peer)
        peer.writer, peer.heard_at, peer.dropped, peer.stamp = writer, time.monotonic(), False, None
        peer.round_trips.clear()
        ended = False
        self._listener.met(peer.name)
        try:
            while line := await reader.readline():
                peer.heard_at = time.monotonic()
                message = PEER_DECODER.decode(line)
                if isinstance(message, StatusBeat):
                    self._measure(peer, message)
                self._listener.on_message(peer.name, message)
            ended = True
        except OSError as error:
            ended = error.errno == errno.ECONNRESET
        finally:
            if peer.writer is writer and ended and not peer.dropped and peer.where.port:
                await self._check_for_death(peer)
            if peer.writer is writer:  # the peer may have called again meanwhile
                self._part(peer)

    async def _check_for_death(self, peer: _Peer) -> None:
        """Find out whether a peer that closed its connection is dead: nothing listens at its port any more.

        All that it sent was received by then.
        """
        for _ in range(LAST_CALLS):
            try:
                reader, writer = await asyncio.wait_for(
                    asyncio.open_connection(peer.where.address, peer.where.port), self._retry_s
                )
            except ConnectionRefusedError:
                self._mark_dead(peer)
                return
            except (TimeoutError, OSError):
                return
            try:
                # The kernel takes calls for a process that is being ended, and drops them with it. A peer that lives
                # waits for the caller to send first.
                await asyncio.wait_for(reader.read(1), LAST_CALL_S)
            except TimeoutError:
                return
            except OSError:
                pass
            finally:
                writer.close()

    def _mark_dead(self, peer: _Peer) -> None:
        if not peer.dead:
            peer.dead = True
            self._listener.on_death(peer.name)

    def _part(self, peer: _Peer) -> None:
        peer.writer = None
        self._listener.on_disconnect(peer.name)

    def _start(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _send_at_once(writer: asyncio.StreamWriter) -> None:
    """Have small messages sent without delay."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
