"""Free TCP ports."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

LOWEST = 10_000
TRIES = 100
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port nobody listens on now; it is not held, so use it soon.

    It is below those that the system gives to whoever asks for any: of those it may give it to another a moment later.
    """
    lowest = _first_given()
    for _ in range(TRIES if lowest > LOWEST else 0):
        port = LOWEST + secrets.randbelow(lowest - LOWEST)
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        given: int = probe.getsockname()[1]
        return given


def _first_given() -> int:
    """The lowest port that the system gives by itself."""
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def is_free(port: int | None) -> bool:
    """Return whether a server could listen on this port of every address."""
    if port is None:
        return True
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
