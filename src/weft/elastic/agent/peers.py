"""The links between the agents of a run: one connection for each pair, kept up as long as both live.

Every agent listens; of each pair the one with the smaller name calls. A witness calls all and is called by none: the
machine it is on may be out of reach. Both prove that they know the run's secret. What
is sent while there is no connection is lost: those who care repeat it when they meet again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from weft.elastic.secret import NONCE_BYTES, PROOF_BYTES, is_proof, nonce, proof

Message = dict[str, Any]
BACKLOG_BYTES = 4 << 20  # more than that unsent: the peer does not listen, and what we say is out of date
LONGEST_LINE = 64 << 20
ROUND_TRIPS = 15  # that are remembered of each peer
LAST_CALLS, LISTEN_S = 10, 0.05  # to one that may be dead


@dataclass(frozen=True)
class Address:
    """Where an agent listens, and for which host it speaks."""

    host: str
    address: str
    port: int


class Listener(Protocol):
    """Who is told what happens on the links."""

    def met(self, peer: str) -> None: ...
    def heard(self, peer: str, message: Message) -> None: ...
    def parted(self, peer: str) -> None: ...
    def died(self, peer: str) -> None: ...


@dataclass
class _Peer:
    """One other agent."""

    name: str
    where: Address
    writer: asyncio.StreamWriter | None = None
    heard_at: float = field(default_factory=time.monotonic)
    dead: bool = False
    dropped: bool = False  # we gave the connection up: words of the peer may be lost
    calling: asyncio.Task[None] | None = None
    stamp: tuple[float, float] | None = None  # its clock when it last spoke, ours when we heard it
    round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=ROUND_TRIPS))


class Peers:
    """All other agents of the run."""

    def __init__(
        self, name: str, secret: str, listener: Listener, *, retry_s: float, calls_all: bool = False
    ) -> None:
        self.name, self._secret, self._listener, self._retry_s = name, secret, listener, retry_s
        self._calls_all = calls_all
        self._closed = False
        self._peers: dict[str, _Peer] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- who there is -----------------------------------------------------------------------------

    def add(self, name: str, where: Address) -> None:
        """Learn of an agent; one without a port is to call us, others whichever of us has the smaller name."""
        if name == self.name or name in self._peers:
            return
        peer = self._peers[name] = _Peer(name, where)
        if where.port and (self._calls_all or self.name < name):
            peer.calling = self._start(self._call(peer))

    def roster(self) -> dict[str, Address]:
        return {name: peer.where for name, peer in self._peers.items() if not peer.dead}

    def silent_for(self, name: str) -> float:
        """Seconds since we last heard from it; infinity if it is dead or unknown."""
        peer = self._peers.get(name)
        return float("inf") if peer is None or peer.dead else time.monotonic() - peer.heard_at

    def send(self, name: str, message: Message) -> None:
        peer = self._peers.get(name)
        if peer is None or peer.writer is None or peer.writer.is_closing():
            return
        if peer.writer.transport.get_write_buffer_size() > BACKLOG_BYTES:
            self._drop(peer)
            return
        peer.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def beat(self, message: Message) -> None:
        """Say something to all, with our time, and theirs as they last told it: so they know how long words take."""
        now = time.monotonic()
        echoes = {p.name: [p.stamp[0], now - p.stamp[1]] for p in self._peers.values() if p.stamp is not None}
        self.send_all({**message, "stamp": now, "echoes": echoes})

    def round_trip_s(self) -> dict[str, float]:
        """How long words usually take to each peer and back, where that is known."""
        full = [
            peer for peer in self._peers.values() if len(peer.round_trips) == ROUND_TRIPS and not peer.dead
        ]
        return {peer.name: median(peer.round_trips) for peer in full}

    def _time(self, peer: _Peer, message: Message) -> None:
        now = time.monotonic()
        peer.stamp = message["stamp"], now
        if (echo := message["echoes"].get(self.name)) is not None:
            peer.round_trips.append(now - echo[0] - echo[1])

    def send_all(self, message: Message) -> None:
        for name in self._peers:
            self.send(name, message)

    def excuse(self, seconds: float) -> None:
        """We ourselves stood still for so long: that we heard nothing meanwhile is nobody's fault."""
        now = time.monotonic()
        for peer in self._peers.values():
            peer.heard_at = min(now, peer.heard_at + seconds)

    def drop_silent(self, silence_s: float) -> None:
        """Call those anew from whom we hear nothing: TCP itself would try the old connection ever more rarely."""
        for name, peer in self._peers.items():
            if peer.writer is not None and not peer.dropped and self.silent_for(name) > silence_s:
                self._drop(peer)

    @staticmethod
    def _drop(peer: _Peer) -> None:
        assert peer.writer is not None
        peer.dropped = True
        peer.writer.transport.abort()

    async def close(self) -> None:
        for peer in self._peers.values():
            if peer.writer is not None:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await asyncio.wait_for(peer.writer.drain(), 0.5)
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
                    asyncio.open_connection(peer.where.address, peer.where.port, limit=LONGEST_LINE),
                    max(1.0, 4 * self._retry_s),
                )
            except ConnectionRefusedError:
                # The host is up and nobody listens there: the process has ended, and with it its workers.
                self._bury(peer)
                return
            except (TimeoutError, OSError):
                pass
            else:
                with contextlib.suppress(OSError, EOFError, ValueError, asyncio.TimeoutError):
                    await asyncio.wait_for(self._greet(reader, writer), 5.0)
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
        """Another agent calls. One we have not heard of yet is let go: it calls again."""
        with contextlib.suppress(OSError, EOFError, ValueError, asyncio.TimeoutError):
            name = await asyncio.wait_for(self._admit(reader, writer), 5.0)
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
        """Hear what the peer says until the connection ends."""
        _hurry(writer)
        if peer.writer is not None:  # it called again: the old connection is no good
            peer.writer.transport.abort()
            self._part(peer)
        peer.writer, peer.heard_at, peer.dropped, peer.stamp = writer, time.monotonic(), False, None
        peer.round_trips.clear()
        ended = False
        self._listener.met(peer.name)
        try:
            while line := await reader.readline():
                peer.heard_at = time.monotonic()
                message = json.loads(line)
                if "stamp" in message:
                    self._time(peer, message)
                self._listener.heard(peer.name, message)
            ended = True
        except OSError as error:
            ended = error.errno == errno.ECONNRESET
        finally:
            if peer.writer is writer and ended and not peer.dropped and peer.where.port:
                await self._see_whether_it_died(peer)
            if peer.writer is writer:  # it may have called again meanwhile
                self._part(peer)

    async def _see_whether_it_died(self, peer: _Peer) -> None:
        """Its end closed the connection: all it said was heard. If nobody listens there any more, it is dead."""
        for _ in range(LAST_CALLS):
            try:
                reader, writer = await asyncio.wait_for(
                    asyncio.open_connection(peer.where.address, peer.where.port), self._retry_s
                )
            except ConnectionRefusedError:
                self._bury(peer)
                return
            except (TimeoutError, OSError):
                return
            try:
                # The kernel takes calls for a process that is being ended, and drops them with it. One that lives
                # waits for us to speak first.
                await asyncio.wait_for(reader.read(1), LISTEN_S)
            except TimeoutError:
                return
            except OSError:
                pass
            finally:
                writer.close()

    def _bury(self, peer: _Peer) -> None:
        if not peer.dead:
            peer.dead = True
            self._listener.died(peer.name)

    def _part(self, peer: _Peer) -> None:
        peer.writer = None
        self._listener.parted(peer.name)

    def _start(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _hurry(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
