"""The common part of the door: who asks, bodies, answers, and refusals in these clients' words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weft.errors import ConnectError, ModelError, PictureError, UsageError
from weft.jobs.data.deployments import DeploymentNotFound
from weft.jobs.doors.access import Authenticate, Caller, DoorError, check_submitter, read_bounded
from weft.jobs.lifecycle import StateError
from weft.jobs.vision.models import PictureModelNotFound
from weft.jobs.vision.predictions import PredictionError
from weft.jobs.vision.projects import PictureProjectNotFound
from weft.vision.refusals import (
    LabelsChangedError,
    PicturesConflictError,
    PicturesForbiddenError,
    PicturesNotFoundError,
)

if TYPE_CHECKING:
    from weft.jobs.service.service import JobService
    from weft.vision.library import Library

ROOT = "/api"
MOST_BODY_BYTES = 16 << 20
T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]
_STATUSES = {
    "unauthenticated": (401, "Unauthorized"),
    "forbidden": (403, "Forbidden"),
    "not-found": (404, "Not Found"),
    "bad": (400, "Bad Request"),
    "conflict": (409, "Conflict"),
    "too-large": (413, "Request Entity Too Large"),
    "gone": (410, "Gone"),
    "busy": (503, "Service Unavailable"),
}
_NOT_FOUND = (PicturesNotFoundError, PictureModelNotFound, PictureProjectNotFound, DeploymentNotFound)


class PowerAiPart:
    """One part of the door; each has routes of its own."""

    def __init__(self, service: JobService, authenticate: Authenticate) -> None:
        self.service, self._database, self._ask = service, service.database, authenticate

    async def caller(self, request: Request, *, writes: bool = False) -> Caller:
        """Return who asks: by the header X-Auth-Token, or as everywhere else."""
        token = request.headers.get("x-auth-token")
        asking: HTTPConnection = request
        if token is not None and "authorization" not in request.headers:
            scope = {**request.scope, "headers": list(request.scope["headers"])}
            MutableHeaders(scope=scope)["authorization"] = f"Bearer {token}"
            asking = HTTPConnection(scope)
        found = await self._ask(asking)
        if found.job_id is not None:
            raise DoorError("forbidden", "a request must be of a user, got the token of a job")
        if writes:
            check_submitter(found)
            request.state.writes = True
        return found

    async def tell(self, request: Request) -> None:
        """Notify the watchers of a data set that a request has changed it."""
        dataset = getattr(request.state, "dataset", None)
        if dataset is not None and getattr(request.state, "writes", False):
            await asyncio.to_thread(self.service.vision.changed, dataset)

    async def library(self, work: Callable[[Library], T]) -> T:
        """Do something with the library in a thread."""
        return await asyncio.to_thread(lambda: work(self.service.trainings.library))


def seen_as(caller: Caller) -> str | None:
    """Return the name by which a caller sees data sets; administrators see all of them."""
    return None if caller.role == "admin" else caller.user_name


async def body_of(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request, also of a GET, as some clients send it; forms are objects of text."""
    kind = request.headers.get("content-type", "")
    if kind.startswith(("multipart/form-data", "application/x-www-form-urlencoded")):
        async with request.form(max_files=0) as form:
            return {name: value for name, value in form.multi_items() if isinstance(value, str)}
    found = await json_of(request)
    if not isinstance(found, dict):
        raise DoorError("bad", "a body must be a JSON object, got another value")
    return found


async def json_of(request: Request) -> Any:
    """Return the JSON value of a request, an empty object where there is no body."""
    data = await read_bounded(request, MOST_BODY_BYTES)
    if not data:
        return {}
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise DoorError("bad", f"a body must be JSON, got: {error}") from None


def text_of(body: dict[str, Any], name: str, *, needed: bool = True) -> str:
    """Return a text of a body."""
    found = body.get(name, "")
    if not isinstance(found, str) or (needed and not found.strip()):
        raise DoorError(
            "bad", f"{name} must be a text, got {'none' if not found else 'another value'}; add {name}"
        )
    return found.strip()


def json_answer(answer: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def success(status: int = 200, /, **fields: Any) -> Response:
    """Return the answer to something that was done; its fields may have a `status`, too."""
    return json_answer({**fields, "result": "success"}, status)


def in_order(found: Sequence[dict[str, Any]], request: Request, usual: int = 10_000) -> list[dict[str, Any]]:
    """Return a list sorted and cut as `sortby` (fields with commas between, DESC for the largest first), `skip` and
    `limit` ask; `usual` is the limit where there is none.
    """
    items = list(found)
    for part in reversed(request.query_params.get("sortby", "").split(",")):
        word, _, direction = part.strip().partition(" ")
        if word:
            down = direction.strip().lower() == "desc"
            items.sort(key=lambda one: _sorted_by(one.get(word)), reverse=down)
    skip, limit = whole(request, "skip", 0), whole(request, "limit", usual)
    return items[skip : skip + limit]


def _sorted_by(value: Any) -> tuple[int, float, str]:
    """Return a key by which values of one field are in order, whatever they are: numbers, texts, then none."""
    if isinstance(value, (int, float)):
        return 0, float(value), ""
    return (1, 0.0, value.lower()) if isinstance(value, str) else (2, 0.0, "")


def whole(request: Request, name: str, usual: int) -> int:
    """Return a whole number of a query."""
    text = request.query_params.get(name, "")
    if not text:
        return usual
    if not text.isdecimal() or len(text) > 9:
        raise DoorError("bad", f"{name} must be a whole number, got {text[:40]!r}")
    return int(text)


def share(text: str, name: str, usual: float) -> float:
    """Return a number from 0 to 1 of a form or a query; some clients write percent."""
    if not text:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    value = value / 100 if 1 < value <= 100 else value
    if not 0 <= value <= 1:
        raise DoorError("bad", f"{name} must be a number from 0 to 1, got {text[:40]!r}")
    return value


def both(path: str, methods: dict[str, Endpoint]) -> list[BaseRoute]:
    """Return the routes of a path with and without a slash at its end: clients send both, and follow no redirect."""
    return [
        Route(f"{ROOT}{path}{slash}", guarded(endpoint), methods=[method])
        for slash in ("", "/")
        for method, endpoint in methods.items()
    ]


def fault(kind: str, text: str) -> Response:
    """Return a refusal as these clients read it."""
    status, words = _STATUSES[kind]
    name = "".join(part.capitalize() for part in words.split()) + "Exception"
    answer = json_answer({"status": words, "fault": text, "type": name, "result": "fail"}, status)
    if status == 401:
        answer.headers["WWW-Authenticate"] = 'Basic realm="weft"'
    return answer


def guarded(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint whose refusals are in these clients' words."""

    async def answer(request: Request) -> Response:
        try:
            answered = await endpoint(request)
            part = getattr(endpoint, "__self__", None)
            if isinstance(part, PowerAiPart):
                await part.tell(request)
            return answered
        except DoorError as error:
            return fault(error.kind, str(error))
        except _NOT_FOUND as error:
            return fault("not-found", str(error))
        except PicturesForbiddenError as error:
            return fault("forbidden", str(error))
        except (PicturesConflictError, LabelsChangedError, StateError) as error:
            return fault("conflict", str(error))
        except PredictionError as error:
            return fault("bad" if error.status == 422 else "busy", str(error))
        except ConnectError as error:
            return fault("busy", str(error))
        except ModuleNotFoundError as error:
            return fault("busy", f"pictures must have weft[vision] on the service, got no {error.name}")
        except (UsageError, PictureError, ModelError) as error:
            return fault("bad", str(error))

    return answer
