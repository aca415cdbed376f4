"""Free TCP ports."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port nobody listens on now; it is not held, so use it soon."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int | None) -> bool:
    """Whether a server could listen on this port of every address."""
    if port is None:
        return True
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
