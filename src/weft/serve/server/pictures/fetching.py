"""Fetching a picture for someone else, without becoming their way into our network.

Only http and https; every address that a name stands for must be a public one; the connection goes to the address
that was checked, not to whatever the name means a moment later; every redirect is checked again; size and time are
bounded.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from time import monotonic
from urllib.parse import SplitResult, urljoin, urlsplit

from weft.serve.server.refusal import RefusalError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_REDIRECTS = 3
_TIMEOUT_S = 10.0


def fetch(url: str, limit: int, allowed: Sequence[str] = (), timeout_s: float = _TIMEOUT_S) -> bytes:
    """What is at a URL, at most `limit` bytes of it. Blocking."""
    deadline = monotonic() + timeout_s
    for _ in range(_REDIRECTS + 1):
        parts = checked_url(url)
        address = _resolve(parts, allowed)
        try:
            moved, body = _get(parts, address, limit, deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RefusalError(400, f"{parts.hostname} did not give the picture: {error}") from None
        if moved is None:
            return body
        url = urljoin(url, moved)
    raise RefusalError(400, f"a URL must lead to a picture within {_REDIRECTS} redirects, got more")


def checked_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # a port that is none shows here
    except ValueError as error:
        raise RefusalError(400, f"url must be one: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RefusalError(400, f"url must begin with http:// or https://, got {url[:100]!r}")
    return parts


def is_public(address: Address, allowed: Sequence[str] = ()) -> bool:
    """Whether a caller may make us connect there."""
    inner = getattr(address, "ipv4_mapped", None) or address
    if any(inner in ipaddress.ip_network(network) for network in allowed):
        return True
    return inner.is_global and not inner.is_multicast


def _resolve(parts: SplitResult, allowed: Sequence[str]) -> str:
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RefusalError(400, f"{parts.hostname} must be a host that can be found: {error}") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(is_public(ipaddress.ip_address(one), allowed) for one in addresses):
        raise RefusalError(403, f"url must point to a public address, got {parts.hostname}")
    return addresses[0]


def _get(parts: SplitResult, address: str, limit: int, deadline: float) -> tuple[str | None, bytes]:
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    plain = socket.create_connection((address, port), timeout=_left(deadline))
    connection = http.client.HTTPConnection(parts.hostname, port)
    try:
        connection.sock = plain
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection.sock = context.wrap_socket(plain, server_hostname=parts.hostname)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.netloc.rpartition("@")[2]
        connection.putrequest("GET", target, skip_host=True)
        connection.putheader("Host", host)
        connection.putheader("User-Agent", "weft")
        connection.putheader("Connection", "close")
        connection.endheaders()
        with connection.getresponse() as answer:
            if answer.status in (301, 302, 303, 307, 308) and (moved := answer.getheader("Location")):
                return moved, b""
            if answer.status != 200:
                raise RefusalError(400, f"{parts.hostname} did not give the picture: status {answer.status}")
            return None, _read(answer, limit, deadline)
    finally:
        connection.close()
        plain.close()


def _read(answer: http.client.HTTPResponse, limit: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        _left(deadline)
        part = answer.read1(1 << 16)
        if not part:
            return b"".join(parts)
        size += len(part)
        if size > limit:
            raise RefusalError(413, f"a fetched picture must be at most {limit} bytes")
        parts.append(part)


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("it took too long")
    return left
