"""Connections of a client that end at a deadline, whatever the server sends: every read and write gets what is left.

A bound on each read alone would let a server send a byte now and then, and hold the caller for hours.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from time import monotonic
from typing import Any

import httpcore


class DeadlineStream(httpcore.NetworkStream):
    """A stream whose reads and writes may take no longer than until a deadline."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: float) -> None:
        self._inner = inner
        self._deadline = deadline  # by monotonic

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, seconds_left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, seconds_left(self._deadline))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, seconds_left(self._deadline))
        return DeadlineStream(inner, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class DeadlineBackend(httpcore.NetworkBackend):
    """Makes streams with a deadline."""

    def __init__(self, deadline: float) -> None:
        self._inner = httpcore.SyncBackend()
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._inner.connect_tcp(
            host, port, seconds_left(self._deadline), local_address, socket_options
        )
        return DeadlineStream(stream, self._deadline)


def seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline; after it, raise TimeoutError."""
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("it took too long")
    return left
