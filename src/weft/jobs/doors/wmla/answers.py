"""Answers of WMLA's REST, and who asks: shared by executions and searches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from weft.errors import UsageError
from weft.jobs.doors.access import Authenticate, Caller, DoorError
from weft.jobs.doors.wmla.executions import ERRORS
from weft.jobs.lifecycle import StateError


async def find_caller(request: Request, authenticate: Authenticate) -> Caller:
    """Return who asks; the token may also be in the header X-Auth-Token."""
    token = request.headers.get("x-auth-token")
    if token is None or "authorization" in request.headers:
        return await authenticate(request)
    scope = {**request.scope, "headers": list(request.scope["headers"])}
    MutableHeaders(scope=scope)["authorization"] = f"Bearer {token}"
    return await authenticate(HTTPConnection(scope))


def json_answer(answer: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint whose refusals are JSON with a message, as WMLA's are."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except DoorError as error:
            found = json_answer({"message": str(error)}, ERRORS[error.kind])
            if found.status_code == 401:
                found.headers["WWW-Authenticate"] = 'Basic realm="weft"'
            return found
        except StateError as error:
            return json_answer({"message": str(error)}, 409)
        except UsageError as error:
            return json_answer({"message": str(error)}, 400)

    return answer
