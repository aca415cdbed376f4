"""Reading a request: the few headers that matter, and its body, never larger than the bound."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from itertools import count
from os import urandom

import msgspec
from starlette.types import Message, Receive

from weft.serve.server.refusal import GoneError, RefusalError

_WINDOWS = {b"gzip": 31, b"deflate": 15}  # what zlib calls the two formats
_LINGER = 64 << 20  # bytes of a body too large that are read and dropped, so that its sender hears why
_PREFIX = urandom(6).hex().encode()
_NUMBERS = count(1)
_READ = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"inference-header-content-length",
        b"origin",
        b"traceparent",
        b"x-api-key",
        b"x-request-id",
    }
)


class Head(msgspec.Struct):
    """The headers that matter to every door."""

    request_id: bytes = b""
    length: int | None = None
    json_length: int | None = None  # of the binary extension
    encoding: bytes = b""
    key: bytes = b""
    kind: bytes = b""  # Content-Type
    parent: bytes = b""  # traceparent: the caller's span
    host: bytes = b""
    origin: bytes = b""  # of the page that a browser sends the request for


def read_head(headers: list[tuple[bytes, bytes]]) -> Head:
    """Read them once; whoever sent no request id is given one."""
    head = Head()
    for name, value in headers:
        if name not in _READ:
            continue
        if name == b"content-length":
            head.length = _number("Content-Length", value)
        elif name == b"inference-header-content-length":
            head.json_length = _number("Inference-Header-Content-Length", value)
        elif name == b"content-type":
            head.kind = value
        elif name == b"x-request-id":
            head.request_id = value[:200]
        elif name == b"content-encoding":
            head.encoding = value.strip().lower()
        elif name == b"x-api-key":
            head.key = value
        elif name == b"authorization" and value[:7].lower() == b"bearer ":
            head.key = value[7:].strip()
        elif name == b"host":
            head.host = value
        elif name == b"traceparent":
            head.parent = value
        elif name == b"origin":
            head.origin = value
    if not head.request_id:
        head.request_id = b"%s-%x" % (_PREFIX, next(_NUMBERS))
    return head


async def read_body(receive: Receive, head: Head, limit: int, message: Message | None = None) -> bytes:
    """The whole body, unpacked; one that is too large is refused before it is kept. A message may be there already."""
    if head.length is not None and head.length > limit:
        if head.length <= limit + _LINGER and (message is None or message.get("more_body")):
            await _drop(receive)
        raise too_large(limit)
    if message is None:
        message = await receive()
    if message["type"] == "http.disconnect":
        raise GoneError
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _rest(receive, body, limit)
    if head.encoding and head.encoding != b"identity":
        # The unpacker lets other threads run.
        body = await asyncio.to_thread(_unpacked, body, head.encoding, limit)
    return body


async def _rest(receive: Receive, first: bytes, limit: int) -> bytes:
    parts, size = [first], len(first)
    message: Message = {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            parts.clear()
            if message.get("more_body"):
                await _drop(receive)
            raise too_large(limit)
        parts.append(part)
    return b"".join(parts)


async def _drop(receive: Receive) -> None:
    size = 0
    message: Message = {"more_body": True}
    with suppress(RefusalError):  # its sender takes too long
        while message.get("more_body") and size <= _LINGER:
            message = await receive()
            size += len(message.get("body", b""))


def _unpacked(body: bytes, encoding: bytes, limit: int) -> bytes:
    if encoding not in _WINDOWS:
        raise RefusalError(
            415, f"Content-Encoding must be gzip or deflate, got {encoding.decode('latin-1')!r}"
        )
    unpacker = zlib.decompressobj(_WINDOWS[encoding])
    try:
        whole = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RefusalError(400, f"the body must be {encoding.decode()}: {error}") from None
    if len(whole) > limit:
        raise too_large(limit)
    if not unpacker.eof:
        raise RefusalError(400, f"the body must be whole {encoding.decode()}, got one that is cut short")
    return whole


def too_large(limit: int) -> RefusalError:
    return RefusalError(413, f"the body must be at most {limit} bytes (--max-body; --max-json for JSON)")


def check_json(size: int, limit: int) -> None:
    """Refuse JSON that is too long to be parsed."""
    if size > limit:
        raise RefusalError(
            413, f"JSON must be at most {limit} bytes (--max-json), got {size}; send tensors in binary"
        )


def _number(name: str, value: bytes) -> int:
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < 0:
        raise RefusalError(400, f"{name} must be a number of bytes, got {value.decode('latin-1')!r}")
    return number
