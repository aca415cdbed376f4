"""Doors for pictures: a JPEG or PNG in, labels or boxes out.

`/test`, `/detect_url`, `/detect_upload` and their `classify` kin choose the only model for the task, or `?model=NAME`;
`/v2/models/NAME/picture` answers by the task on the model's card.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weft.serve.server.inference import outputs_by_name
from weft.serve.server.models.model import Model
from weft.serve.server.pictures.answers import classes, detections, heat_map, plain
from weft.serve.server.pictures.fetching import fetch
from weft.serve.server.pictures.pictures import Geometry, row_of
from weft.serve.server.protocols.bodies import Head
from weft.serve.server.protocols.rest import as_json, body_of
from weft.serve.server.protocols.tensors import Array, TensorSpec
from weft.serve.server.refusal import RefusalError
from weft.serve.server.state import ServerState

_FETCHERS = 8  # pictures that are fetched side by side
_MOST_FETCHES = 64  # under way or waiting; one more is answered 429


class Pictures:
    """Handlers over the server's state."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._repository = state.repository
        # Fetching waits for others' servers, so it has threads of its own: pictures that are there do not wait.
        self._fetchers = ThreadPoolExecutor(_FETCHERS, thread_name_prefix="fetch")
        self._fetches = 0  # under way or waiting

    def routes(self) -> list[Route]:
        return [
            Route("/test", self.test),
            Route("/detect_url", self.detect_url),
            Route("/detect_upload", self.detect_upload, methods=["POST"]),
            Route("/classify_url", self.classify_url),
            Route("/classify_upload", self.classify_upload, methods=["POST"]),
            Route("/v2/models/{name}/picture", self.picture, methods=["POST"]),
        ]

    async def test(self, request: Request) -> Response:
        return as_json({"status": "running"})

    async def detect_url(self, request: Request) -> Response:
        return await self._answer(request, self._chosen(request, "detect"), await self._fetched(request))

    async def detect_upload(self, request: Request) -> Response:
        return await self._answer(request, self._chosen(request, "detect"), await self._uploaded(request))

    async def classify_url(self, request: Request) -> Response:
        return await self._answer(request, self._chosen(request, "classify"), await self._fetched(request))

    async def classify_upload(self, request: Request) -> Response:
        return await self._answer(request, self._chosen(request, "classify"), await self._uploaded(request))

    async def picture(self, request: Request) -> Response:
        model = self._repository.model(request.path_params["name"])
        return await self._answer(request, model, await self._uploaded(request))

    def _chosen(self, request: Request, task: str) -> Model:
        name = request.query_params.get("model")
        model = self._repository.model(name) if name else self._repository.only(task)
        if model.card.task != task:
            raise RefusalError(
                400, f"{model.name} must be a model for the task {task}, got {model.card.task}"
            )
        return model

    async def _fetched(self, request: Request) -> bytes:
        options = self._state.options
        if not options.fetch:
            raise RefusalError(403, "fetching pictures by URL is off; start the server with --detect-url")
        url = request.query_params.get("url")
        if not url:
            raise RefusalError(400, "url must be given: ?url=https://...")
        if self._fetches >= _MOST_FETCHES:
            raise RefusalError(429, f"at most {_MOST_FETCHES} pictures are fetched at once", retry_after_s=1)
        self._fetches += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._fetchers, fetch, url, options.max_body, options.fetch_from
            )
        finally:
            self._fetches -= 1

    async def _uploaded(self, request: Request) -> bytes:
        """The body itself, or the first file of a form."""
        head: Head = request.scope["weft.head"]
        body = await body_of(request, self._state)
        if not head.kind.lower().startswith(b"multipart/form-data"):
            return body
        _, parameters = parse_options_header(head.kind)
        if b"boundary" not in parameters:
            raise RefusalError(400, "a form must say its boundary")

        async def whole() -> Any:
            yield body

        try:
            form = await MultiPartParser(request.headers, whole()).parse()
        except (MultiPartException, FormParserError, KeyError) as error:
            raise RefusalError(400, f"the form cannot be read: {error}") from None
        try:
            for value in form.values():
                if isinstance(value, UploadFile):
                    return await value.read()
        finally:
            await form.close()
        raise RefusalError(400, "the form must hold a file, got none")

    async def _answer(self, request: Request, model: Model, data: bytes) -> Response:
        with model.held():
            spec = picture_input(model)
            row, geometry = await asyncio.to_thread(self._prepared, data, model, spec)
            outputs = await outputs_by_name(self._repository, model, {spec.name: row}, request.receive)
            return as_json(_shown(request, model, outputs, geometry))

    def _prepared(self, data: bytes, model: Model, spec: TensorSpec) -> tuple[Array, Geometry]:
        assert model.card.picture is not None
        return row_of(data, model.card.picture, self._state.options.max_pixels, spec.datatype)


def picture_input(model: Model) -> TensorSpec:
    """The input that takes the picture: the only one with four sizes."""
    found = [spec for spec in model.inputs.values() if len(spec.shape) == 4]
    if model.card.picture is None or len(found) != 1 or len(model.inputs) != 1:
        raise RefusalError(
            400,
            f"{model.name} must take one picture, and its card say how; export it with its picture's size",
        )
    return found[0]


def _shown(request: Request, model: Model, outputs: dict[str, Array], geometry: Geometry) -> Any:
    if model.card.task == "classify":
        found = classes(outputs, model.card, int(_number(request, "top", 5, 1000)))
        heat = request.query_params.get("heat", "") if request.scope["query_string"] else ""
        if heat in ("", "false"):
            return found
        shown = heat_map(outputs, model.card, geometry, "" if heat == "true" else heat)
        return {"classified": found, **({"heatmap": shown} if shown is not None else {})}
    if model.card.task == "detect":
        return detections(
            outputs,
            model.card,
            geometry,
            confidence=_number(request, "confidence", 0.25, 1),
            overlap=_number(request, "overlap", model.card.overlap, 1),
        )
    return plain(outputs)


def _number(request: Request, name: str, usual: float, most: float) -> float:
    text = request.query_params.get(name) if request.scope["query_string"] else None
    try:
        value = usual if text is None else float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise RefusalError(400, f"{name} must be a number from 0 to {most:g}, got {text!r}")
    return value
