"""The server's ASGI application: every request passes here for its key, request id, log line and errors as JSON.

Inference requests of V2 are answered here, without routing; all others by the routes.
"""

from __future__ import annotations

import asyncio
import traceback
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from weft.serve.server import logs
from weft.serve.server.hosts import LoopbackHosts
from weft.serve.server.inference import Counted, run_model
from weft.serve.server.keys import KeyRing
from weft.serve.server.models.model import Model
from weft.serve.server.options import is_loopback
from weft.serve.server.pictures.routes import Pictures
from weft.serve.server.protocols import pages
from weft.serve.server.protocols.bodies import Head, check_json, read_body, read_head, too_large
from weft.serve.server.protocols.classification import classified
from weft.serve.server.protocols.rest import V2
from weft.serve.server.protocols.tensors import Array
from weft.serve.server.protocols.v1 import V1
from weft.serve.server.protocols.v2 import Ask, format_infer, parse_infer
from weft.serve.server.refusal import GoneError, RefusalError
from weft.serve.server.state import ServerState
from weft.serve.server.tracing import Tracing

# Paths that need no key: the health of the server, and the pages, which hold no data and ask for the key themselves.
OPEN = frozenset(
    {"/v2/health/live", "/v2/health/ready", "/health/ping", "/test", "/", "/docs", "/openapi.json"}
)
_PREFIX, _SUFFIX = "/v2/models/", "/infer"
_NAME_AT, _NAME_TO = len(_PREFIX), -len(_SUFFIX)
_REPOSITORY = "/v2/repository/models/"
_SHARED_MEMORY = ("/v2/systemsharedmemory/", "/v2/cudasharedmemory/")  # of Triton
_LONG_JSON = 64 << 10  # bytes of JSON from which on a thread parses it
_JSON = (b"content-type", b"application/json")
_BYTES = (b"content-type", b"application/octet-stream")
_UNREAD = Head()  # of a request whose headers could not be read
_CLOSE = frozenset(
    {408, 413}
)  # statuses after which the connection is closed: the rest of the body is not read


class Application:
    """The ASGI application that the server runs."""

    def __init__(self, state: ServerState, keys: KeyRing | None, tracing: Tracing) -> None:
        self._state = state
        self._repository = state.repository
        self._options = state.options
        self._keys = keys
        # A page of another site can make a browser call this machine by any name, but it has no key.
        guarded = keys is None and is_loopback(self._options.host)
        self._hosts = LoopbackHosts(self._options.allow_hosts) if guarded else None
        self._tracing = tracing
        routes = [
            *V1(state).routes(),
            *Pictures(state).routes(),
            *pages.routes(state),
            *V2(state).routes(),
        ]
        self._parsers = ThreadPoolExecutor(2, thread_name_prefix="parse")
        # A bare router: the exceptions of its handlers reach __call__, which answers for all of them.
        self._routes = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        began = perf_counter()
        self._state.in_flight += 1
        path: str = scope["path"]
        head, error, status = _UNREAD, "", 500
        try:
            head = read_head(scope["headers"])
            if self._hosts is not None:
                self._hosts.check(head.host)
            if self._keys is not None and path not in OPEN:
                self._keys.check(head.key, admin=is_admin(scope["method"], path))
            if self._tracing.on:
                with self._tracing.http(scope["method"], path, head):
                    status = await self._answer(scope, path, head, receive, send, began)
            else:
                status = await self._answer(scope, path, head, receive, send, began)
        except RefusalError as refusal:
            status, error = refusal.status, str(refusal)
            if not isinstance(refusal, GoneError):
                await refuse(send, head, refusal)
        except HTTPException as unknown:
            status, error = _unknown(scope, unknown.status_code)
            await refuse(send, head, RefusalError(status, error))
        except Exception:  # a fault of the server: the caller learns no details, the log does
            error = traceback.format_exc()
            if not scope.get("weft.begun"):
                await refuse(send, head, RefusalError(500, "the server failed; its log says how"))
        finally:
            self._state.in_flight -= 1
            if status >= 400 or self._options.log_requests:
                _log(scope, head, status, error, began)

    async def _answer(
        self, scope: Scope, path: str, head: Head, receive: Receive, send: Send, began: float
    ) -> int:
        """Answer an inference request here, any other by its route; return the status."""
        if path.endswith(_SUFFIX) and path.startswith(_PREFIX) and scope["method"] == "POST":
            await self._infer(path, head, receive, send, began)
            return 200
        return await self._route(scope, head, receive, send)

    async def _infer(self, path: str, head: Head, receive: Receive, send: Send, began: float) -> None:
        """Answer an inference request of V2. Most requests come this way, so its steps are few."""
        body = await self._body(head, receive)
        name, version = path[_NAME_AT:_NAME_TO], None
        if "/" in name:
            name, version = split_path(name)
        model = self._repository.model(name, version)
        with Counted(model, began):
            ask = await self._parsed(body, head.json_length)
            if ask.outputs:
                model.check_outputs(ask.outputs)
            outputs = await run_model(self._repository, model, ask.feeds, receive, ask.timeout_s)
            chosen = model.choose(ask.outputs, outputs)
            if ask.classes:
                chosen = [(name, self._classified(model, ask, name, array)) for name, array in chosen]
            answer, json_length = format_infer(model.name, model.version, ask, chosen)
        headers = [
            _JSON if json_length is None else _BYTES,
            (b"content-length", b"%d" % len(answer)),
            (b"x-request-id", head.request_id),
        ]
        if json_length is not None:
            headers.append((b"inference-header-content-length", b"%d" % json_length))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _classified(self, model: Model, ask: Ask, name: str, array: Array) -> Array:
        if name not in ask.classes:
            return array
        return classified(array, ask.classes[name], model.card.labels, model.has_rows(name))

    async def _parsed(self, body: bytes, json_length: int | None) -> Ask:
        """Return a request from its body; a thread parses long JSON, so that others need not wait for all of it."""
        size = len(body) if json_length is None else json_length
        if size < _LONG_JSON:
            return parse_infer(body, json_length)
        check_json(size, self._options.max_json)
        return await asyncio.get_running_loop().run_in_executor(self._parsers, parse_infer, body, json_length)

    async def _body(self, head: Head, receive: Receive) -> bytes:
        """Return the body of an inference request; one that arrived whole and plain needs no further reading."""
        limit = self._options.max_body
        if head.json_length is None:  # nothing but JSON
            limit = min(limit, self._options.max_json)
            if head.length is not None and head.length > limit:
                return await read_body(receive, head, limit)  # which refuses, before anything is kept
        message = await receive()
        if head.encoding or message["type"] != "http.request" or message.get("more_body"):
            return await read_body(receive, head, limit, message)
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        return body

    async def _route(self, scope: Scope, head: Head, receive: Receive, send: Send) -> int:
        status = 500
        if scope["method"] not in ("GET", "HEAD"):
            check_origin(head)
        scope["weft.head"] = head
        scope["app"] = self  # makes the router raise an HTTPException where it has no route

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                scope["weft.begun"] = True
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", head.request_id)]
            await send(message)

        await self._routes(scope, receive, tagged)
        return status


def is_admin(method: str, path: str) -> bool:
    """Return whether a request changes what is served, which takes the key of an administrator."""
    return method != "GET" and path.startswith(_REPOSITORY)


def check_origin(head: Head) -> None:
    """Refuse a request that a page of another site, open in a browser on this machine, sends to this server."""
    if head.origin and head.origin.partition(b"://")[2] != head.host:
        raise RefusalError(403, "a page may call only the server that it came from")


def _log(scope: Scope, head: Head, status: int, error: str, began: float) -> None:
    details: dict[str, Any] = {
        "id": head.request_id.decode("latin-1"),
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "ms": round((perf_counter() - began) * 1000, 3),
    }
    logs.event("request", **details, **({"error": error} if error else {}))


def _unknown(scope: Scope, status: int) -> tuple[int, str]:
    """Return the status and the words for a path that has no route."""
    if scope["path"].startswith(_SHARED_MEMORY):
        return 501, "shared memory is not supported; send tensors in the request"
    if status == 405:
        return status, f"{scope['method']} is not for {scope['path']}; see /docs"
    return status, f"there is nothing at {scope['path']}; see /docs"


def split_path(rest: str) -> tuple[str, str | None]:
    """Return the name and the version in `name` or `name/versions/3`, a part of a path."""
    parts = rest.split("/")
    if len(parts) == 1:
        return parts[0], None
    if len(parts) == 3 and parts[1] == "versions":
        return parts[0], parts[2]
    raise RefusalError(404, f"the path must be /v2/models/NAME[/versions/VERSION]/..., got {rest!r}")


async def refuse(send: Send, head: Head, refusal: RefusalError) -> None:
    """Answer a request with the status and the message of a refusal."""
    body = msgspec.json.encode({"error": str(refusal)})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", head.request_id),
    ]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % refusal.retry_after_s))
    if refusal.status in _CLOSE:
        headers.append((b"connection", b"close"))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
