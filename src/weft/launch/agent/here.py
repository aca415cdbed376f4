"""A test whether a host name means the machine we are on."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def is_this_machine(name: str) -> bool:
    """Return whether a host is this machine, by its own names; a look-up could hang or answer for another card."""
    here = socket.gethostname()
    return name in {"localhost", LOOPBACK, "::1", here, here.partition(".")[0]}
