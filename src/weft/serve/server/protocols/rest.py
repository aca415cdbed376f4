"""The routes of V2 that are asked now and then: health, metadata, statistics, the repository, metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weft.errors import UsageError
from weft.serve.server.models.metrics import CONTENT_TYPE, exposition
from weft.serve.server.models.model import Model
from weft.serve.server.options import Traffic
from weft.serve.server.protocols.bodies import Head, read_body
from weft.serve.server.protocols.descriptions import (
    model_config,
    model_metadata,
    model_statistics,
    server_metadata,
)
from weft.serve.server.refusal import RefusalError
from weft.serve.server.state import ServerState

_LONG_JSON = 64 << 10  # bytes of JSON from which on a thread parses it

Handler = Callable[[Request], Awaitable[Response]]


def as_json(data: Any, status: int = 200) -> Response:
    """Return an answer in JSON, with NaN and Infinity where numbers are not finite, as inference answers have it."""
    text = msgspec.json.encode(data)
    if b"null" in text:  # also what msgspec writes for numbers that are not finite
        text = json.dumps(msgspec.to_builtins(data)).encode()
    return Response(text, status, media_type="application/json")


async def body_of(request: Request, state: ServerState) -> bytes:
    head: Head = request.scope["weft.head"]
    return await read_body(request.receive, head, state.options.max_body)


async def json_of(request: Request, state: ServerState, kind: type[Any] = dict[str, Any]) -> Any:
    """The body as JSON of a kind; an empty one is an empty object."""
    head: Head = request.scope["weft.head"]
    body = await read_body(request.receive, head, min(state.options.max_body, state.options.max_json))
    if len(body) > _LONG_JSON:
        return await asyncio.to_thread(_decoded, body, kind)
    return _decoded(body, kind)


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        if b"NaN" in body or b"Infinity" in body:  # which only Python's module reads
            return msgspec.convert(json.loads(body), type=kind)
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RefusalError(400, f"the body must be JSON: {error}") from None


class LoadBody(msgspec.Struct):
    """The parameters of a load: `version` picks a version; others that Triton's clients send are ignored."""

    parameters: dict[str, Any] = {}


class IndexBody(msgspec.Struct):
    """The filter of an index: all models, or only those that can answer."""

    ready: bool = False


class TrafficBody(msgspec.Struct):
    """The canary of a model and its share of the requests, and the shadow that gets copies of them."""

    canary: str | None = None
    # The bounds are for the OpenAPI document; `Traffic` checks them.
    percent: Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 100})] = 0.0
    shadow: str | None = None


class V2:
    """Handlers over the server's state."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._repository = state.repository

    def routes(self) -> list[Route]:
        models, chosen = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
        repository = "/v2/repository/models/{name}"
        return [
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.ready),
            Route("/v2/models/stats", self.all_statistics),
            *(Route(base, self.metadata) for base in (models, chosen)),
            *(Route(f"{base}/ready", self.model_ready) for base in (models, chosen)),
            *(Route(f"{base}/config", self.config) for base in (models, chosen)),
            *(Route(f"{base}/stats", self.statistics) for base in (models, chosen)),
            Route("/v2/repository/index", self.index, methods=["POST"]),
            Route(f"{repository}/load", self.load, methods=["POST"]),
            Route(f"{repository}/unload", self.unload, methods=["POST"]),
            Route(f"{repository}/traffic", self.traffic),
            Route(f"{repository}/traffic", self.set_traffic, methods=["POST"]),
            Route("/metrics", self.metrics),
        ]

    async def server(self, request: Request) -> Response:
        return as_json(server_metadata())

    async def live(self, request: Request) -> Response:
        return as_json({"live": True})

    async def ready(self, request: Request) -> Response:
        self._state.check_ready()
        return as_json({"ready": True})

    async def metadata(self, request: Request) -> Response:
        return as_json(model_metadata(self._repository, self._model(request)))

    async def model_ready(self, request: Request) -> Response:
        model = self._model(request)
        return as_json({"name": model.name, "ready": True})

    async def config(self, request: Request) -> Response:
        return as_json(model_config(self._model(request)))

    async def statistics(self, request: Request) -> Response:
        if "version" in request.path_params:
            found = [self._model(request)]
        else:
            found = list(self._repository.versions(self._model(request).name).values())
        return as_json({"model_stats": [model_statistics(model) for model in found]})

    async def all_statistics(self, request: Request) -> Response:
        return as_json({"model_stats": [model_statistics(model) for model in self._repository.loaded()]})

    async def index(self, request: Request) -> Response:
        asked: IndexBody = await json_of(request, self._state, IndexBody)
        found = await self._repository.index()
        return as_json([entry for entry in found if not asked.ready or entry["state"] == "READY"])

    async def load(self, request: Request) -> Response:
        asked: LoadBody = await json_of(request, self._state, LoadBody)
        version = asked.parameters.get("version")
        if version is not None and not isinstance(version, str | int):
            raise RefusalError(400, f"version must be a number or an alias, got {version!r}")
        await self._repository.load(request.path_params["name"], None if version is None else str(version))
        return as_json({})

    async def unload(self, request: Request) -> Response:
        await body_of(request, self._state)
        await self._repository.unload(request.path_params["name"])
        return as_json({})

    async def traffic(self, request: Request) -> Response:
        return as_json(self._repository.traffic(request.path_params["name"]))

    async def set_traffic(self, request: Request) -> Response:
        asked: TrafficBody = await json_of(request, self._state, TrafficBody)
        try:
            traffic = Traffic(asked.canary, asked.percent, asked.shadow)
        except UsageError as error:
            raise RefusalError(400, str(error)) from None
        await self._repository.set_traffic(request.path_params["name"], traffic)
        return as_json(traffic)

    async def metrics(self, request: Request) -> Response:
        return Response(exposition(self._state.tallies, self._state.is_ready()), media_type=CONTENT_TYPE)

    def _model(self, request: Request) -> Model:
        return self._repository.model(request.path_params["name"], request.path_params.get("version"))
