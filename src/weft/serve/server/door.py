"""Where every request comes in: key, request id, log line, errors as JSON; inference goes the short way.

A plain ASGI application. Inference requests are answered here, all others by the routes behind it.
"""

from __future__ import annotations

import asyncio
import traceback
from time import perf_counter
from typing import Any, Protocol

import msgspec
from starlette.exceptions import HTTPException

from weft.serve.server import logs
from weft.serve.server.keys import KeyRing
from weft.serve.server.models.model import Model
from weft.serve.server.models.queue import Feeds
from weft.serve.server.protocols.bodies import Head, Receive, Scope, Send, read_body, read_head, too_large
from weft.serve.server.protocols.tensors import Array
from weft.serve.server.protocols.v2 import format_infer, parse_infer
from weft.serve.server.refusal import GoneError, RefusalError
from weft.serve.server.state import ServerState
from weft.serve.server.tracing import Tracing

# Open to everybody: whether the server lives, and the page, which holds nothing and asks for the key itself.
OPEN = frozenset(
    {"/v2/health/live", "/v2/health/ready", "/health/ping", "/test", "/", "/docs", "/openapi.json"}
)
_PREFIX, _SUFFIX = "/v2/models/", "/infer"
_NAME_AT, _NAME_TO = len(_PREFIX), -len(_SUFFIX)
_JSON = (b"content-type", b"application/json")
_NOBODY = Head()  # whose headers could not be read
_BYTES = (b"content-type", b"application/octet-stream")
_CLOSE = frozenset({413})  # the rest of the body is not read


class App(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Door:
    """The application that the server runs."""

    def __init__(self, state: ServerState, routes: App, keys: KeyRing | None, tracing: Tracing) -> None:
        self._state = state
        self._repository = state.repository
        self._options = state.options
        self._routes = routes
        self._keys = keys
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        began = perf_counter()
        self._state.in_flight += 1
        path: str = scope["path"]
        head, error, status = _NOBODY, "", 500
        try:
            head = read_head(scope["headers"])
            if self._keys is not None and path not in OPEN:
                self._keys.check(head.key)
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
            status, error = unknown.status_code, _unknown(scope, unknown.status_code)
            await refuse(send, head, RefusalError(status, error))
        except Exception:  # ours: nobody is told more than that, but the log
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
        """Inference, or one of the routes. This is the way of most requests, so it is kept short."""
        if not (path.endswith(_SUFFIX) and path.startswith(_PREFIX) and scope["method"] == "POST"):
            return await self._other(scope, head, receive, send)
        message = await receive()
        if not head.encoding and message["type"] == "http.request" and not message.get("more_body"):
            body = message.get("body", b"")
            if len(body) > self._options.max_body:
                raise too_large(self._options.max_body)
        else:
            body = await read_body(receive, head, self._options.max_body, message)
        name, version = path[_NAME_AT:_NAME_TO], None
        if "/" in name:
            name, version = split_path(name)
        model = self._repository.model(name, version)
        try:
            ask = parse_infer(body, head.json_length)
            if ask.outputs:
                model.check_outputs(ask.outputs)
            found = model.start(ask.feeds, ask.timeout_s)
            if (other := self._repository.shadow(model)) is not None:
                mirror(other, ask.feeds)
            if not isinstance(found, list):
                with model.held():
                    found = await until_gone(found, receive)
            answer, json_length = format_infer(
                model.name, model.version, ask, model.choose(ask.outputs, found)
            )
        except RefusalError as refusal:
            model.tally.failed(refusal.status, perf_counter() - began)
            raise
        except Exception as error:  # the model's own failure: it is told, and the server goes on
            model.tally.failed(500, perf_counter() - began)
            raise RefusalError(500, f"model {model.name!r} failed: {error}") from error
        model.answered(began)
        headers = [
            _JSON if json_length is None else _BYTES,
            (b"content-length", b"%d" % len(answer)),
            (b"x-request-id", head.request_id),
        ]
        if json_length is not None:
            headers.append((b"inference-header-content-length", b"%d" % json_length))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        return 200

    async def _other(self, scope: Scope, head: Head, receive: Receive, send: Send) -> int:
        status = 500
        if scope["method"] not in ("GET", "HEAD"):
            check_origin(scope)
        scope["weft.head"] = head
        scope["app"] = self  # makes the router raise what it has no route for

        async def tagged(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                scope["weft.begun"] = True
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", head.request_id)]
            await send(message)

        await self._routes(scope, receive, tagged)
        return status


def check_origin(scope: Scope) -> None:
    """A page of somebody else, open in a browser on this machine, shall not change what is served here."""
    found = {name: value for name, value in scope["headers"] if name in (b"origin", b"host")}
    origin = found.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != found.get(b"host"):
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


def _unknown(scope: Scope, status: int) -> str:
    if status == 405:
        return f"{scope['method']} is not for {scope['path']}; see /docs"
    return f"there is nothing at {scope['path']}; see /docs"


def split_path(rest: str) -> tuple[str, str | None]:
    """`name` or `name/versions/3`, as they stand in a path."""
    parts = rest.split("/")
    if len(parts) == 1:
        return parts[0], None
    if len(parts) == 3 and parts[1] == "versions":
        return parts[0], parts[2]
    raise RefusalError(404, f"the path must be /v2/models/NAME[/versions/VERSION]/..., got {rest!r}")


async def until_gone(future: asyncio.Future[list[Array]], receive: Receive) -> list[Array]:
    """The answer; or nothing more of it, if the client leaves before."""
    gone = asyncio.ensure_future(receive())  # after the body there is only one thing that can come
    gone.add_done_callback(lambda _: future.cancel())
    try:
        return await future
    except asyncio.CancelledError:
        if gone.done():
            raise GoneError from None
        raise
    finally:
        gone.cancel()


def mirror(model: Model, feeds: Feeds) -> None:
    """A copy for a shadow: nobody waits for it, and if its queue is full it goes without."""
    try:
        found = model.start(feeds)
    except Exception:
        model.tally.failed(500, 0.0)
        return
    if isinstance(found, list):
        model.answered(perf_counter())
    else:
        began = perf_counter()
        found.add_done_callback(lambda done: _mirrored(model, done, began))


def _mirrored(model: Model, done: asyncio.Future[list[Array]], began: float) -> None:
    if done.cancelled() or done.exception() is not None:
        model.tally.failed(500, perf_counter() - began)
    else:
        model.answered(began)


async def refuse(send: Send, head: Head, refusal: RefusalError) -> None:
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
