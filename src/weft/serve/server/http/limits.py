"""Bounds of a connection, and the decision which connections have used up their time: pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

KEEP_ALIVE_S = 60.0  # how long a connection may be idle after an answer
QUIET_S = 1.0  # how long an idle connection is waited for when the server ends


class Phase(Enum):
    """The part of an exchange that a connection is in."""

    FRESH = "accepted, no byte yet"
    HEAD = "inside a request line or its headers"
    BODY = "inside a body"
    ANSWERING = "the request is whole, the answer is not"
    KEPT = "idle after an answer"
    REFUSED = "refused and told so; further bytes are dropped"


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Bounds of what a connection may send, and of how long it may take."""

    head_bytes: int = 64 << 10  # request line and headers
    headers: int = 100
    ahead_bytes: int = 1 << 20  # of a body, read before the request asks for it
    body_bytes: int = 64 << 20  # of a body, gathered for one message once the request asks for it
    head_s: float = 10.0  # from the accept, or from the first byte after an answer, to the end of the head
    request_s: float = 60.0  # from the same moment to the end of the body; also a client that reads no answer
    keep_alive_s: float = KEEP_ALIVE_S
    linger_s: float = 1.0  # how long the bytes of a refused request are read, so that its sender hears why
    connections: int = 10_000  # open at once; one more closes the one that has been waited for longest


def is_overdue(phase: Phase, waited_s: float, limits: ConnectionLimits, *, ending: bool) -> bool:
    """Return whether a connection that has been in a phase for so long is to be ended."""
    match phase:
        case Phase.FRESH:
            return waited_s > (QUIET_S if ending else limits.head_s)
        case Phase.KEPT:
            return waited_s > (QUIET_S if ending else limits.keep_alive_s)
        case Phase.HEAD:
            return waited_s > limits.head_s
        case Phase.BODY:
            return waited_s > limits.request_s
        case Phase.REFUSED:
            return waited_s > limits.linger_s
        case Phase.ANSWERING:
            return False  # the model's own time-out counts
