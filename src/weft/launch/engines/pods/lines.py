"""Lines of JSON between pods, on a connection whose ends have proven that they know the run's secret."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

from weft.errors import ConnectError
from weft.secret import greet

CONNECT_TIMEOUT_S = 3.0
LONGEST_BYTES = 1 << 20
PEEK_BYTES = 1 << 16


def send_line(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive_line(connection: socket.socket) -> dict[str, Any] | None:
    """Receive one message, and not a byte after it; None at the end."""
    data = bytearray()
    while not data.endswith(b"\n"):
        seen = connection.recv(PEEK_BYTES, socket.MSG_PEEK)
        if not seen:
            return None
        data += connection.recv(seen.find(b"\n") + 1 or len(seen))
        if len(data) > LONGEST_BYTES:
            raise ConnectError("a pod must send short lines, got one without an end")
    try:
        message = json.loads(data)
    except ValueError:
        raise ConnectError("a pod must send lines of JSON, got something else") from None
    if not isinstance(message, dict):
        raise ConnectError("a pod must send objects, got something else")
    return message


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice within seconds that the other end is gone without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def listen_at(address: str, port: int, *, backlog: int) -> socket.socket:
    """Return a listener at an address of this pod, of either family; an empty one stands for all of both."""
    if not address and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the kernel may know of IPv6 and have no address of it
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
            )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=backlog)


def reach(name: str, port: int, secret: str) -> socket.socket:
    """Return a connection to the pod of a name that knows the secret of the run.

    For a while a name may stand for others as well: a pod on a lost node, or one of an earlier run that still ends.
    """
    trouble: OSError | ConnectError | None = None
    for family, kind, protocol, _, place in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(CONNECT_TIMEOUT_S)
            connection.connect(place)
            greet(connection, secret)
            return connection
        except (OSError, ConnectError) as error:
            connection.close()
            trouble = error
    assert trouble is not None, "a name that is found stands for something"
    raise trouble
