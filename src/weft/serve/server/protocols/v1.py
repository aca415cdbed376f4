"""Two older doors: Seldon's predictions and KServe's V1 `:predict`, each a thin way to the same models."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weft.serve.server.inference import outputs_by_name
from weft.serve.server.models.model import Model
from weft.serve.server.protocols.rest import as_json, json_of
from weft.serve.server.protocols.tensors import NUMPY, Array, TensorSpec
from weft.serve.server.refusal import RefusalError
from weft.serve.server.state import ServerState


class SeldonTensor(msgspec.Struct):
    """Seldon's dense form."""

    shape: list[int]
    values: list[Any]


class SeldonData(msgspec.Struct):
    """Rows of numbers, and perhaps the names of the columns."""

    ndarray: list[Any] | None = None
    tensor: SeldonTensor | None = None
    names: list[str] = []


class SeldonMessage(msgspec.Struct):
    """A Seldon message with data in it."""

    data: SeldonData
    meta: dict[str, Any] = {}


class Instances(msgspec.Struct):
    """KServe's V1 request."""

    instances: list[Any]


class V1:
    """Handlers over the server's state."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._repository = state.repository

    def routes(self) -> list[Route]:
        seldon = (
            "/api/v1.0/predictions",
            "/api/v0.1/predictions",
            "/seldon/{space}/{name}/api/v1.0/predictions",
        )
        return [
            *(Route(path, self.predictions, methods=["POST"]) for path in seldon),
            Route("/health/ping", self.ping),
            Route("/health/status", self.status),
            Route("/v1/models", self.list),
            Route("/v1/models/{name}:predict", self.predict, methods=["POST"]),
            Route("/v1/models/{name}", self.ready),
        ]

    async def ping(self, request: Request) -> Response:
        return Response("pong", media_type="text/plain")

    async def status(self, request: Request) -> Response:
        return as_json({"data": {"names": self._repository.names(), "ndarray": []}, "meta": {}})

    async def list(self, request: Request) -> Response:
        return as_json({"models": self._repository.names()})

    async def ready(self, request: Request) -> Response:
        name = request.path_params["name"]
        if not self._repository.ready(name):
            self._repository.model(name)  # says what is wrong
        return as_json({"name": name, "ready": True})

    async def predictions(self, request: Request) -> Response:
        message: SeldonMessage = await json_of(request, self._state, SeldonMessage)
        name = request.path_params.get("name") or request.query_params.get("model")
        model = self._repository.model(name) if name else self._repository.only()
        dense = message.data.tensor
        if dense is not None:
            given = _array(_only_input(model), dense.values)
            if any(size < 0 for size in dense.shape) or given.size != np.prod(dense.shape, dtype=object):
                raise RefusalError(400, f"tensor must have as many values as its shape {dense.shape} says")
            try:
                given = given.reshape(dense.shape)
            except (ValueError, OverflowError) as error:
                raise RefusalError(400, f"tensor must have the shape of an array: {error}") from None
        elif message.data.ndarray is not None:
            given = _array(_only_input(model), message.data.ndarray)
        else:
            raise RefusalError(400, "data must have ndarray or tensor, got neither")
        outputs = await outputs_by_name(
            self._repository, model, {_only_input(model).name: given}, request.receive
        )
        first = next(iter(outputs.values()))
        names = _names(model, first)
        if dense is not None:
            data: dict[str, Any] = {
                "names": names,
                "tensor": {"shape": first.shape, "values": first.ravel().tolist()},
            }
        else:
            data = {"names": names, "ndarray": first.tolist()}
        meta = {**message.meta, "requestPath": {model.name: model.version}}
        return as_json({"data": data, "meta": meta})

    async def predict(self, request: Request) -> Response:
        model = self._repository.model(request.path_params["name"])
        asked: Instances = await json_of(request, self._state, Instances)
        feeds = _columns(model, asked.instances)
        outputs = await outputs_by_name(self._repository, model, feeds, request.receive)
        if len(outputs) == 1:
            return as_json({"predictions": next(iter(outputs.values())).tolist()})
        rows = zip(*(array.tolist() for array in outputs.values()), strict=True)
        return as_json({"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]})


def _columns(model: Model, instances: list[Any]) -> dict[str, Array]:
    """Rows as KServe has them: values, or objects that name each input."""
    if instances and all(isinstance(row, dict) for row in instances):
        rows: list[dict[str, Any]] = instances
        unknown = {name for row in rows for name in row} - set(model.inputs)
        if unknown or any(len(row) != len(model.inputs) for row in rows):
            raise RefusalError(
                400, f"each instance must name the inputs {', '.join(model.inputs)} and no other"
            )
        return {name: _array(spec, [row[name] for row in rows]) for name, spec in model.inputs.items()}
    return {_only_input(model).name: _array(_only_input(model), instances)}


def _only_input(model: Model) -> TensorSpec:
    if len(model.inputs) != 1:
        raise RefusalError(
            400,
            f"{model.name} takes {', '.join(model.inputs)}; this door is for models with one input: use V2",
        )
    return next(iter(model.inputs.values()))


def _array(spec: TensorSpec, values: list[Any]) -> Array:
    try:
        return np.array(values, NUMPY[spec.datatype])
    except (ValueError, TypeError, OverflowError) as error:
        raise RefusalError(400, f"{spec.name!r} must be rows of {spec.datatype}: {error}") from None


def _names(model: Model, output: Array) -> list[str]:
    if output.ndim == 2 and output.shape[1] == len(model.card.labels):
        return list(model.card.labels)
    return [f"t:{place}" for place in range(output.shape[1])] if output.ndim == 2 else []
