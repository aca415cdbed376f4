"""Binding: routes made of the table of operations and their handlers; requests are read, checked and recorded.

The order of the checks is that of what they give away: who asks, whether they may, then whether the request is good.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weft.documents import describe_mismatch
from weft.jobs.api.access import Identity, address_of
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.once import answer_once
from weft.jobs.api.operations import PREFIX, ApiOperation
from weft.jobs.api.state import ApiCall, ApiState
from weft.jobs.api.types.common import RequestProblem
from weft.jobs.store.events import add_audit

Handler = Callable[[ApiCall], Awaitable[Any]]
MAX_JSON_BYTES = 8 << 20
_LARGEST_ID = 2**53 - 1
_GZIP_FROM_BYTES = 4096
_NOBODY = Identity(0, "", "viewer", frozenset(), "api")
_MOST_PARAMETERS = 50


def bind(
    state: ApiState, operations: tuple[ApiOperation, ...], handlers: Mapping[str, Handler]
) -> list[Route]:
    """Return a route for each operation."""
    return [_route(state, one, handlers[one.name]) for one in operations]


def _route(state: ApiState, one: ApiOperation, handler: Handler) -> Route:
    async def answer(request: Request) -> Response:
        identity = await _identity(state, one, request)
        path = _path(request, one)
        if identity.job_id is not None and not (one.job_scope and path.get("job") == identity.job_id):
            _check_stream_scope(one, request, identity)
        query = _query(request, one)
        raw = await read_body(request, MAX_JSON_BYTES) if one.body not in (None, bytes) else b""
        call = ApiCall(state, identity, request, path, query, _body(raw, one, request))
        if one.once and (key := request.headers.get("idempotency-key")):
            return await answer_once(call, one, key, raw, lambda: _answered(call, one, handler))
        return await _answered(call, one, handler)

    return Route(PREFIX + one.path, answer, methods=[one.method.upper()], name=one.name)


def _check_stream_scope(one: ApiOperation, request: Request, identity: Identity) -> None:
    topics = request.query_params.get("topics", "jobs").split(",")
    mine = f"job:{identity.job_id}"
    if one.name != "stream" or not all(topic in (mine, f"{mine}:metrics") for topic in topics):
        raise ApiRefusal(
            403, f"a token of job {identity.job_id} must be used for that job, got another request"
        )


async def _identity(state: ApiState, one: ApiOperation, request: Request) -> Identity:
    if one.access == "open":
        return _NOBODY
    identity = await state.authenticator.identify(request)
    if one.method != "get":
        state.authenticator.check_csrf(request, identity)
    if identity.job_id is None:
        identity.check(one.access)
    return identity


async def _answered(call: ApiCall, one: ApiOperation, handler: Handler) -> Response:
    result = await handler(call)
    if one.audit is not None:
        await _record(call, one)
    if isinstance(result, Response):
        return result
    if one.answer is None:
        return Response(status_code=one.status)
    return await json_response(result, one.status, call.request)


async def json_response(result: Any, status: int, request: Request | None = None) -> Response:
    """Return an answer as JSON, compressed where that saves much and the caller can read it."""
    body = msgspec.json.encode(result)
    headers = {"cache-control": "no-store"}
    wants = request is not None and "gzip" in request.headers.get("accept-encoding", "")
    if wants and len(body) >= _GZIP_FROM_BYTES:
        body = await asyncio.to_thread(gzip.compress, body, 1)
        headers |= {"content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(body, status, headers, "application/json")


async def _record(call: ApiCall, one: ApiOperation) -> None:
    """Write who did it into the audit."""
    assert one.audit is not None
    target = " ".join(f"{name} {value}" for name, value in call.path.items())
    detail = {"address": address_of(call.request)} | _shown(call.body)
    name, action = call.identity.name or detail.get("name") or "nobody", one.audit
    target = target or str(detail.get("name", ""))
    await call.database.write(lambda c: add_audit(c, str(name), action, target[:250], **detail))


def _shown(body: Any) -> dict[str, Any]:
    """Return what the audit may show of a request's body: no passwords, links, values of secrets."""
    if not isinstance(body, msgspec.Struct):
        return {}
    hidden = ("password", "old_password", "link", "value", "key")
    fields = msgspec.to_builtins(body)
    return {name: value for name, value in fields.items() if name not in hidden and value is not None}


def _path(request: Request, one: ApiOperation) -> dict[str, Any]:
    """Return the parameters in the path; numbers no id can have are not found."""
    for name, value in request.path_params.items():
        if (isinstance(value, int) and value > _LARGEST_ID) or (isinstance(value, str) and "\0" in value):
            raise not_found(f"the {name}")
    return dict(request.path_params)


def _query(request: Request, one: ApiOperation) -> Any:
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MOST_PARAMETERS,
            errors="strict",
        )
    except ValueError:
        raise ApiRefusal(
            422, f"a query must be at most {_MOST_PARAMETERS} pairs in UTF-8, got another"
        ) from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found or "\0" in value:
            raise ApiRefusal(422, f"a parameter must be given once and be text, got {name[:100]!r} otherwise")
        found[name] = value
    try:
        return msgspec.convert(found, one.query, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, one.query) from None


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return a body; one that is too large is refused before it is kept."""
    parts: list[bytes] = []
    async for part in bounded_parts(request, most_bytes):
        parts.append(part)
    return b"".join(parts)


async def bounded_parts(request: Request, most_bytes: int) -> Any:
    """Yield the parts of a body; one that is too large is refused."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most_bytes:
        raise ApiRefusal(413, f"a body must be at most {most_bytes} bytes, got {length}; send less at once")
    total = 0
    async for part in request.stream():
        total += len(part)
        if total > most_bytes:
            raise ApiRefusal(413, f"a body must be at most {most_bytes} bytes, got more; send less at once")
        yield part


def _body(raw: bytes, one: ApiOperation, request: Request) -> Any:
    if one.body in (None, bytes):
        return None
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiRefusal(415, f"a body must be application/json, got {kind[:100]}")
    if b"\\u0000" in raw:
        raise ApiRefusal(422, "text must be without NUL characters, got one; remove it")
    try:
        return msgspec.json.decode(raw, type=one.body)
    except msgspec.ValidationError as error:
        raise invalid(error, one.body) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiRefusal(400, f"a body must be JSON, got: {error}") from None


def invalid(error: msgspec.ValidationError, model: type) -> ApiRefusal:
    """Return the refusal of a request that is not of its type."""
    text = describe_mismatch(str(error), model).replace("mend the file", "mend the request")
    subject, _, rest = text.partition(" must ")
    must, _, rest = rest.rpartition(", got ")
    got, _, following = rest.partition("; ")
    return ApiRefusal(422, text, problems=(RequestProblem(subject, must, got, following),))
