"""Control connections: each rank has one to the coordinator at rank 0, made when a world is; messages are msgpack."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.collectives.modes.tcp.mesh import listen
from weft.compat.horovod.negotiation.messages import (
    AgreedBatch,
    AgreedOps,
    AllDrained,
    RankDrained,
    ReadyOps,
    SendAgain,
    StopAll,
    StopRequest,
)
from weft.errors import CollectiveError, PeerError
from weft.secret import admit, greet, new_secret

LENGTH = struct.Struct("!I")
LOOK_S = 0.05  # between two looks whether it is in vain to wait
STRANGER_S = 5.0  # for a caller to prove that it is one of us
CHUNK_BYTES = 1 << 15  # at a time: a larger buffer is asked of the system each time, and given back

encode = msgspec.msgpack.Encoder().encode
_from_rank = msgspec.msgpack.Decoder(ReadyOps | StopRequest | RankDrained)
_from_coordinator = msgspec.msgpack.Decoder(AgreedOps | AgreedBatch | SendAgain | StopAll | AllDrained)


class RankFacts(msgspec.Struct, frozen=True, array_like=True):
    """One rank as it introduces itself to the coordinator."""

    rank: int
    host: str
    local_rank: int
    local_size: int
    pid: int


class ChannelClosed(Exception):  # noqa: N818 (the ordinary end of a connection)
    """The other end of a connection is gone."""


class ControlChannel:
    """One end of a control connection; messages have their length before them."""

    def __init__(self, connection: socket.socket, decoder: Any) -> None:
        connection.settimeout(None)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._decoder = connection, decoder
        self._unread = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, data: bytes) -> None:
        """Send an encoded message; one to a peer that is gone is lost."""
        with suppress(OSError):
            self._connection.sendall(LENGTH.pack(len(data)) + data)

    def receive(self, *, wait: bool = True) -> list[Any]:
        """Return the messages that have come, at least a part of one if `wait`; raises ChannelClosed at the end."""
        try:
            data = self._connection.recv(CHUNK_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosed from error
        if not data:
            raise ChannelClosed
        self._unread += data
        found = []
        start = 0
        while len(self._unread) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._unread, start)
            end = start + LENGTH.size + length
            if len(self._unread) < end:
                break
            found.append(self._decoder.decode(memoryview(self._unread)[start + LENGTH.size : end]))
            start = end
        del self._unread[:start]
        return found

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@dataclass(frozen=True)
class ControlPlane:
    """The control connections of one rank: to all others at rank 0, to rank 0 elsewhere; and who everyone is."""

    channels: dict[int, ControlChannel]  # by rank
    roster: tuple[RankFacts, ...]

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()


def meet_alone(facts: RankFacts) -> ControlPlane:
    """Return the control plane of a world of one."""
    return ControlPlane({}, (facts,))


def meet_all(
    store: Any,
    facts: RankFacts,
    size: int,
    *,
    address: str,
    secret: str,
    timeout_s: float,
    in_vain: Callable[[], bool] = lambda: False,
) -> ControlPlane:
    """Connect this rank with the coordinator, or the coordinator with everyone; all ranks call this."""
    patience = WaitLimit(timeout_s, in_vain)
    if facts.rank == 0:
        return _gather(store, facts, size, address, secret or new_secret(), patience)
    return _call(store, facts, secret, patience)


@dataclass
class WaitLimit:
    """A limit on waiting: by the clock, or as soon as it is known to be in vain."""

    timeout_s: float
    in_vain: Callable[[], bool]

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.timeout_s

    def check(self, missing: Callable[[], str]) -> None:
        """Raise if there is no use in waiting any longer for what is missing."""
        if self.in_vain():
            raise PeerError("a member was lost while the world was made")
        if time.monotonic() > self._deadline:
            raise CollectiveError(
                f"all ranks must come to hvd.init() within {self.timeout_s:g} s, got no sign of {missing()}; see what "
                "became of them, or raise HOROVOD_START_TIMEOUT"
            )


def _gather(
    store: Any, facts: RankFacts, size: int, address: str, secret: str, patience: WaitLimit
) -> ControlPlane:
    known = {0: facts}
    channels: dict[int, ControlChannel] = {}
    with listen(address) as listener:
        store.set("control", f"{address} {listener.getsockname()[1]} {secret}")
        while len(known) < size:
            patience.check(lambda: ", ".join(f"rank {rank}" for rank in range(size) if rank not in known))
            if not select.select([listener], [], [], LOOK_S)[0]:
                continue
            connection, _ = listener.accept()
            caller = _admit(connection, secret)
            if caller is not None:
                known[caller.rank] = caller
                channels[caller.rank] = ControlChannel(connection, _from_rank)
    roster = tuple(known[rank] for rank in range(size))
    for channel in channels.values():
        channel.send(encode(roster))
    return ControlPlane(channels, roster)


def _admit(connection: socket.socket, secret: str) -> RankFacts | None:
    """Return who calls, if the caller knows the secret."""
    connection.settimeout(STRANGER_S)
    try:
        admit(connection, secret)
        channel = ControlChannel(connection, msgspec.msgpack.Decoder(RankFacts))
        (caller,) = channel.receive()
    except Exception:  # a stranger, a port scan, a peer that died
        connection.close()
        return None
    found: RankFacts = caller
    return found


def _call(store: Any, facts: RankFacts, secret: str, patience: WaitLimit) -> ControlPlane:
    while not store.check(["control"]):
        patience.check(lambda: "rank 0")
        time.sleep(0.002)
    address, port, published = store.get("control").decode().split(" ")
    connection = socket.create_connection((address, int(port)), timeout=patience.timeout_s)
    greet(connection, secret or published)
    channel = ControlChannel(connection, msgspec.msgpack.Decoder(tuple[RankFacts, ...]))
    channel.send(encode(facts))
    while True:
        patience.check(lambda: "some ranks")
        if select.select([connection], [], [], LOOK_S)[0]:
            try:
                found = channel.receive()
            except ChannelClosed:
                raise PeerError("rank 0 was lost while the world was made") from None
            if found:
                break
    return ControlPlane({0: ControlChannel(connection, _from_coordinator)}, found[0])
