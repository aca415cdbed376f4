"""TCP connections between the peers of one dimension: each pair has one, used both ways."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from weft.collectives.modes.peers import Describe, did_not_come
from weft.collectives.settings import LauncherFacts
from weft.errors import ConnectError, PeerError
from weft.secret import admit, greet, receive
from weft.topology.network import cards, source_address

_CALLER = struct.Struct("!I")  # the index of the peer that calls
_STRANGER_S = 5.0  # for a caller to prove that it is one of the peers
_BUFFER_BYTES = 4 << 20
_LOOK_S = 0.2  # between two looks whether a peer that has not called yet is still there


def own_address(facts: LauncherFacts) -> str:
    """The address where peers on other hosts reach this process.

    It is that of the network card the launcher chose, or of the card that leads to the leader.
    """
    for card in cards():
        if card.name == facts.network_card:
            return card.addresses[0]
    leader = facts.leader_address
    return (source_address(leader) if leader else None) or "127.0.0.1"


def listen(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=256)


class Mesh:
    """Connected sockets, one per peer; `None` in our own place."""

    def __init__(
        self,
        listener: socket.socket,
        addresses: Sequence[tuple[str, int]],
        *,
        index: int,
        secret: str,
        timeout_s: float,
        describe: Describe,
        lives: Callable[[int], bool] = lambda peer: True,
    ) -> None:
        self._lives = lives
        self.index = index
        self.size = len(addresses)
        self.timeout_s = timeout_s
        self.describe = describe
        self.sockets: list[socket.socket | None] = [None] * self.size
        deadline = time.monotonic() + timeout_s
        try:
            for peer in range(index):  # the later calls the earlier
                self.sockets[peer] = self._call(peer, addresses[peer], secret, deadline)
            while None in self.sockets[index + 1 :]:
                self._answer(listener, secret, deadline)
        except BaseException:
            self.close()
            raise
        finally:
            listener.close()
        for connection in self.sockets:
            if connection is not None:
                connection.setblocking(False)

    def _call(self, peer: int, address: tuple[str, int], secret: str, deadline: float) -> socket.socket:
        try:
            connection = socket.create_connection(address, timeout=max(0.1, deadline - time.monotonic()))
        except OSError as error:
            raise PeerError(self.describe(peer, f"could not be reached at {address[0]}: {error}")) from error
        _tune(connection)
        try:
            connection.sendall(_CALLER.pack(self.index))
            greet(connection, secret)
        except (OSError, ConnectError) as error:
            connection.close()
            raise PeerError(self.describe(peer, f"could not be met at {address[0]}: {error}")) from error
        return connection

    def _answer(self, listener: socket.socket, secret: str, deadline: float) -> None:
        missing = self.sockets.index(None, self.index + 1)
        listener.settimeout(_LOOK_S)
        try:
            connection, _ = listener.accept()
        except TimeoutError as error:
            if not self._lives(missing):
                raise PeerError(self.describe(missing, "died")) from error
            if time.monotonic() > deadline:
                raise PeerError(self.describe(missing, did_not_come(self.timeout_s))) from error
            return
        connection.settimeout(_STRANGER_S)
        try:
            (caller,) = _CALLER.unpack(receive(connection, _CALLER.size))
            admit(connection, secret)
        except (OSError, ConnectError):
            connection.close()  # a port scanner, or a caller that has died
            return
        if not self.index < caller < self.size or self.sockets[caller] is not None:
            connection.close()
            return
        _tune(connection)
        self.sockets[caller] = connection

    def socket_of(self, peer: int) -> socket.socket:
        connection = self.sockets[peer]
        assert connection is not None
        return connection

    def close(self) -> None:
        for connection in self.sockets:
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for it
                connection.close()


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)


def bytes_of(values: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor, whatever its type; valid as long as the tensor is."""
    return memoryview((ctypes.c_char * values.nbytes).from_address(values.data_ptr())).cast("B")
