"""The ASGI application of the service: every request passes here for its Host, its origin, headers and failures."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from os import urandom

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Message, Receive, Scope, Send

from weft.jobs.api.binding import Handler, bind, json_response
from weft.jobs.api.failures import ApiRefusal, as_refusal
from weft.jobs.api.openapi import document
from weft.jobs.api.operations import OPERATIONS, PREFIX
from weft.jobs.api.pages import POLICY, Pages
from weft.jobs.api.routes import MODULES
from weft.jobs.api.state import ApiState
from weft.serve.server import logs as server_logs
from weft.serve.server.hosts import LoopbackHosts
from weft.serve.server.refusal import GoneError, RefusalError

HANDLERS: Mapping[str, Handler] = {
    name: handler for module in map(import_module, MODULES) for name, handler in module.HANDLERS.items()
}
_SECURITY = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
_TLS_ONLY = (b"strict-transport-security", b"max-age=31536000")
_CLOSE = frozenset({408, 413})  # after which the rest of the body is not read


class JobsApplication:
    """The ASGI application that the server runs."""

    def __init__(
        self,
        state: ApiState,
        *,
        pages: Pages | None = None,
        doors: Sequence[BaseRoute] = (),
        hosts: LoopbackHosts | None = None,
    ) -> None:
        self._pages = pages or Pages(None)
        self._hosts = hosts
        self._headers = [*_SECURITY.items(), *([_TLS_ONLY] if state.secure else [])]
        self._prefix, self._numbers = urandom(4).hex(), itertools.count(1)
        described = document()

        async def openapi(request: Request) -> Response:
            return await json_response(described, 200, request)

        routes = [*bind(state, OPERATIONS, HANDLERS), Route(f"{PREFIX}/openapi.json", openapi)]
        # A bare router: the exceptions of its handlers reach __call__, which answers for all of them.
        self._routes = Router([*routes, *doors], redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        begun = False
        number = f"{self._prefix}-{next(self._numbers):x}"

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = self._with_headers(message["headers"], number)
            await send(message)

        try:
            self._check_sender(scope)
            await self._answer(scope, receive, guarded)
        except GoneError:
            return
        except Exception as error:
            refusal = as_refusal(error) or self._fault(scope, number)
            if not begun:
                await _refuse(scope, receive, guarded, refusal)

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a WebSocket to its door, unless a page of another site opened it."""
        try:
            self._check_sender(scope)
        except (ApiRefusal, RefusalError):
            await receive()  # the wish to connect
            await send({"type": "websocket.close", "code": 1008})  # answered 403, as it is not accepted
            return
        await self._routes(scope, receive, send)

    def _with_headers(self, given: list[tuple[bytes, bytes]], number: str) -> list[tuple[bytes, bytes]]:
        """Return an answer's headers with those that every answer has; its own count more."""
        names = {name.lower() for name, _ in given}
        more = [(name, value) for name, value in self._headers if name not in names]
        return [*given, *more, (b"x-request-id", number.encode())]

    def _check_sender(self, scope: Scope) -> None:
        """Refuse what a page of another site makes a browser send."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"")
        if self._hosts is not None:
            self._hosts.check(host)
        origin = headers.get(b"origin", b"")
        reads = scope.get("method") in ("GET", "HEAD")  # a WebSocket has none
        if not reads and origin and origin.partition(b"://")[2] != host:
            raise ApiRefusal(
                403, "a page must call the service that it came from, got another", code="origin"
            )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # makes the router raise an HTTPException where it has no route
        try:
            await self._routes(scope, receive, send)
        except HTTPException as unknown:
            await self._unknown(scope, unknown)(scope, receive, send)

    def _unknown(self, scope: Scope, unknown: HTTPException) -> Response:
        """Return the page for a path that has no route; below /api there are no pages."""
        path: str = scope["path"]
        if unknown.status_code == 405:
            raise ApiRefusal(405, f"{scope['method']} is not for {path}; see {PREFIX}/openapi.json")
        if unknown.status_code != 404 or path.startswith("/api/") or scope["method"] not in ("GET", "HEAD"):
            raise ApiRefusal(
                unknown.status_code, f"a path must be one of {PREFIX}/openapi.json, got {path[:200]!r}"
            )
        return self._pages.answer(path)

    def _fault(self, scope: Scope, number: str) -> ApiRefusal:
        """Return the answer to a request on which the service failed; its log says how."""
        error = traceback.format_exc()
        server_logs.event("request", id=number, method=scope["method"], path=scope["path"], error=error)
        return ApiRefusal(500, f"the service failed on request {number}; its log says how", code="failed")


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: ApiRefusal) -> None:
    headers = {"cache-control": "no-store"}
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(refusal.retry_after_s)
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refusal.status in _CLOSE:
        headers["connection"] = "close"
    await Response(refusal.body(), refusal.status, headers, "application/json")(scope, receive, send)
