"""The names by which a server on a loopback address may be called.

A page of another site can let its own name resolve to 127.0.0.1 (DNS rebinding); a browser then sends it all answers of
this server. Such requests carry the site's name in `Host`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.serve.server.options import is_loopback
from weft.serve.server.refusal import RefusalError

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?", re.IGNORECASE)
_MOST_KNOWN = 1000  # texts of `Host` that are remembered as good


def is_loopback_name(host: str, allowed: Sequence[str] = ()) -> bool:
    """Return whether a `Host` header names this machine: localhost, a name below it, or a loopback address."""
    found = _HOST.fullmatch(host.strip())
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    return name.endswith(".localhost") or is_loopback(name) or name in allowed


class LoopbackHosts:
    """The check of every request's `Host`."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = tuple(name.lower() for name in allowed)
        self._known: set[bytes] = {b""}  # HTTP/1.0 has none, and browsers always send one

    def check(self, host: bytes) -> None:
        if host in self._known:
            return
        text = host.decode("latin-1")
        if not is_loopback_name(text, self._allowed):
            raise RefusalError(
                421,
                f"a server on a loopback address answers to localhost only, got Host: {text[:100]}; "
                "--allow-host lets another name in",
            )
        if len(self._known) < _MOST_KNOWN:
            self._known.add(host)
