"""Fetching a picture by a URL that a caller names, without giving the caller a way into the server's network.

Only http and https; every address of the host must be public; the connection goes to the address that was checked, not
to whatever the name resolves to a moment later; every redirect is checked again; size and time are bounded.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator, Sequence
from time import monotonic

import httpcore
import httpx

from weft.serve.server.pictures.deadlines import DeadlineBackend, seconds_left
from weft.serve.server.refusal import RefusalError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")  # all other IPv6 addresses are reserved or local
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # the last four bytes are the IPv4 address that is meant
# Global by their number, but a way to other addresses, or to documents only: 6to4, Teredo and its kin, examples, SRv6.
_NOT_PUBLIC = tuple(map(ipaddress.ip_network, ("2002::/16", "2001::/23", "2001:db8::/32", "3fff::/20")))
MAX_REDIRECTS = 3
TIMEOUT_S = 10.0  # for the whole fetch, redirects included
_PORTS = {"http": 80, "https": 443}
_FAILURES = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)
# Bytes are counted as they arrive, so the answer must not be compressed.
_HEADERS = {"User-Agent": "weft", "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}


class CheckedTransport(httpx.BaseTransport):
    """Sends each request, also those that follow a redirect, to a public address of its host, before a deadline."""

    def __init__(self, allowed: Sequence[str], deadline: float) -> None:
        self._allowed = allowed
        self._deadline = deadline
        # A kept connection would be found by its address, though it was opened, and its certificate checked, for
        # another name.
        self._inner = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_keepalive_connections=0,
            network_backend=DeadlineBackend(deadline),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = checked_url(request.url)
        address = httpx.URL(scheme="http", host=_resolve(url, self._allowed))
        pinned = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=address.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,  # with the Host of the URL
            content=request.stream if isinstance(request.stream, httpx.SyncByteStream) else None,
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        answer = self._inner.handle_request(pinned)
        return httpx.Response(answer.status, headers=answer.headers, stream=AnswerStream(answer))

    def close(self) -> None:
        self._inner.close()


class AnswerStream(httpx.SyncByteStream):
    """The body of an answer as httpx reads it."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


def fetch(url: str, limit: int, allowed: Sequence[str] = (), timeout_s: float = TIMEOUT_S) -> bytes:
    """Return what is at a URL, at most `limit` bytes; `allowed` networks may be private. Blocks."""
    deadline = monotonic() + timeout_s
    target = checked_url(url)
    with httpx.Client(
        transport=CheckedTransport(allowed, deadline),
        auth=httpx.Auth(),  # a name and password in the URL are not sent
        headers=_HEADERS,
        follow_redirects=True,
        max_redirects=MAX_REDIRECTS,
        trust_env=False,
    ) as client:
        try:
            with client.stream("GET", target) as answer:
                return _read(answer, limit, deadline)
        except httpx.TooManyRedirects:
            raise RefusalError(
                400, f"a URL must lead to a picture within {MAX_REDIRECTS} redirects, got more"
            ) from None
        except (*_FAILURES, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise RefusalError(
                400, f"{target.host} did not give the picture: {error or type(error).__name__}"
            ) from None


def checked_url(url: str | httpx.URL) -> httpx.URL:
    """Return a URL of http or https with a host and a valid port; anything else is refused."""
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise RefusalError(400, f"url must be one: {error}") from None
    if parts.scheme not in _PORTS or not parts.host:
        raise RefusalError(400, f"url must begin with http:// or https://, got {str(url)[:100]!r}")
    if parts.port is not None and not 0 < parts.port < 1 << 16:
        raise RefusalError(400, f"the port of a url must be 1 to 65535, got {parts.port}")
    return parts


def is_public(address: Address, allowed: Sequence[str] = ()) -> bool:
    """Return whether a caller may make the server connect to an address."""
    inner = getattr(address, "ipv4_mapped", None) or address
    if any(inner in ipaddress.ip_network(network) for network in allowed):
        return True
    if isinstance(inner, ipaddress.IPv6Address):
        if inner in _NAT64:
            return is_public(ipaddress.IPv4Address(inner.packed[-4:]), allowed)
        if inner not in _GLOBAL_UNICAST or any(inner in network for network in _NOT_PUBLIC):
            return False
    return inner.is_global and not inner.is_multicast


def is_public_host(host: str, allowed: Sequence[str] = ()) -> bool:
    """Return False for a host whose name alone, an address or localhost, says that it is not public; asks nobody."""
    try:
        return is_public(ipaddress.ip_address("127.0.0.1" if host == "localhost" else host), allowed)
    except ValueError:
        return True


def _resolve(url: httpx.URL, allowed: Sequence[str]) -> str:
    """Return an address of a URL's host; if one of its addresses is not public, the host is refused."""
    try:
        found = socket.getaddrinfo(url.host, url.port or _PORTS[url.scheme], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RefusalError(400, f"{url.host} must be a host that can be found: {error}") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(is_public(ipaddress.ip_address(one), allowed) for one in addresses):
        raise RefusalError(403, f"url must point to a public address, got {url.host}")
    return addresses[0]


def _read(answer: httpx.Response, limit: int, deadline: float) -> bytes:
    if answer.status_code != 200:
        raise RefusalError(400, f"{answer.url.host} did not give the picture: status {answer.status_code}")
    parts: list[bytes] = []
    size = 0
    for part in answer.iter_raw():
        seconds_left(deadline)
        size += len(part)
        if size > limit:
            raise RefusalError(413, f"a fetched picture must be at most {limit} bytes")
        parts.append(part)
    return b"".join(parts)
