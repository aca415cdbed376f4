"""TCP connections between the peers of one dimension: each pair has one, used both ways."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import time
from collections.abc import Sequence

from torch import Tensor

from weft.collectives.modes.peers import Describe
from weft.collectives.settings import LauncherFacts
from weft.errors import PeerError
from weft.topology.network import cards, source_address

_HELLO = struct.Struct("!I16s")  # who calls, and the secret of the group
_BUFFER_BYTES = 4 << 20


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
        secret: bytes,
        timeout_s: float,
        describe: Describe,
    ) -> None:
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

    def _call(self, peer: int, address: tuple[str, int], secret: bytes, deadline: float) -> socket.socket:
        try:
            connection = socket.create_connection(address, timeout=max(0.1, deadline - time.monotonic()))
        except OSError as error:
            raise PeerError(self.describe(peer, f"could not be reached at {address[0]}: {error}")) from error
        _tune(connection)
        connection.sendall(_HELLO.pack(self.index, secret))
        return connection

    def _answer(self, listener: socket.socket, secret: bytes, deadline: float) -> None:
        missing = self.sockets.index(None, self.index + 1)
        listener.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            connection, _ = listener.accept()
        except TimeoutError as error:
            raise PeerError(self.describe(missing, f"did not call within {self.timeout_s:g} s")) from error
        connection.settimeout(5.0)
        try:
            caller, told = _HELLO.unpack(connection.recv(_HELLO.size, socket.MSG_WAITALL))
        except (OSError, struct.error):
            connection.close()  # a port scanner, or a caller that has died
            return
        if told != secret or not self.index < caller < self.size:
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
