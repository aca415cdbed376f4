"""The document at `/openapi.json`: every route of the server in OpenAPI 3.1, with schemas of the types behind them.

`OPERATIONS` lists the routes; msgspec makes the schemas from the types that requests are decoded to and answers are
encoded from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weft.serve.server.models.model import Model
from weft.serve.server.models.repository import IndexEntry
from weft.serve.server.protocols.descriptions import ModelMetadata, ServerMetadata, StatisticsAnswer
from weft.serve.server.protocols.rest import IndexBody, LoadBody, TrafficBody
from weft.serve.server.protocols.v1 import Instances, SeldonMessage
from weft.serve.server.protocols.v2 import InferRequest, InferResponse
from weft.version import __version__

Schema = dict[str, Any]

MAX_EXAMPLE = 10_000  # characters of an example request; longer ones are left out
_REFERENCE = "#/components/schemas/{name}"


class ErrorAnswer(msgspec.Struct):
    """The reason why a request was refused or failed."""

    error: str


@dataclass(frozen=True)
class Query:
    """A parameter in the query of a URL."""

    name: str
    kind: type = str
    required: bool = False


@dataclass(frozen=True)
class Operation:
    """One method of one route: its request, and its answer when all is well."""

    method: str
    path: str  # parts in braces are parameters
    summary: str
    answer: Any = dict[str, Any]
    body: Any = None  # the type of its JSON; None: no body
    body_required: bool = True
    query: tuple[Query, ...] = ()
    content: Mapping[str, Schema] = field(default_factory=dict)  # bodies other than JSON, by media type
    media_type: str = "application/json"  # of the answer

    @property
    def id(self) -> str:
        """Return a name for generated clients: the method, and the words of the path."""
        words = re.findall(r"\w+", self.path.replace(".", "_"))
        return "_".join([self.method, *words])


_BINARY: Schema = {"type": "string", "format": "binary"}
_PICTURE: dict[str, Schema] = {
    "image/jpeg": _BINARY,
    "image/png": _BINARY,
    "multipart/form-data": {"type": "object", "required": ["file"], "properties": {"file": _BINARY}},
}
_FOUND = list[dict[str, Any]]
_MODEL, _URL, _TOP = Query("model"), Query("url", required=True), Query("top", int)
_BOXES = (Query("confidence", float), Query("overlap", float))
_HEAT = Query("heat")  # true, or a label: the answer is {classified, heatmap}, a PNG in a data URL
_INFERENCE = "Inference. With Inference-Header-Content-Length, the bytes of the tensors follow the JSON."


def _model_operations(base: str) -> tuple[Operation, ...]:
    """Return the operations of V2 on a model, or on one version of a model."""
    return (
        Operation("get", base, "A model: inputs, outputs, versions.", ModelMetadata),
        Operation("get", f"{base}/ready", "Whether the model can answer."),
        Operation("get", f"{base}/config", "The configuration of the model."),
        Operation("get", f"{base}/stats", "Statistics of the model.", StatisticsAnswer),
        Operation("post", f"{base}/infer", _INFERENCE, InferResponse, InferRequest),
    )


OPERATIONS = (
    Operation("get", "/v2", "The server: its name, version and extensions.", ServerMetadata),
    Operation("get", "/v2/health/live", "Whether the server lives."),
    Operation("get", "/v2/health/ready", "Whether the server takes requests."),
    Operation("get", "/v2/models/stats", "Statistics of all models.", StatisticsAnswer),
    *_model_operations("/v2/models/{name}"),
    *_model_operations("/v2/models/{name}/versions/{version}"),
    Operation(
        "post",
        "/v2/repository/index",
        "All models, loaded or not.",
        list[IndexEntry],
        IndexBody,
        body_required=False,
    ),
    Operation(
        "post",
        "/v2/repository/models/{name}/load",
        "Load a model, or load it again.",
        body=LoadBody,
        body_required=False,
    ),
    Operation("post", "/v2/repository/models/{name}/unload", "Unload a model."),
    Operation("get", "/v2/repository/models/{name}/traffic", "The canary and the shadow.", TrafficBody),
    Operation(
        "post",
        "/v2/repository/models/{name}/traffic",
        "Set the canary and the shadow.",
        TrafficBody,
        TrafficBody,
    ),
    Operation("post", "/api/v1.0/predictions", "Seldon's prediction.", body=SeldonMessage, query=(_MODEL,)),
    Operation("post", "/api/v0.1/predictions", "Seldon's prediction.", body=SeldonMessage, query=(_MODEL,)),
    Operation(
        "post", "/seldon/{space}/{name}/api/v1.0/predictions", "Seldon's prediction.", body=SeldonMessage
    ),
    Operation("get", "/health/ping", "The word pong.", str, media_type="text/plain"),
    Operation("get", "/health/status", "Names of the models, as Seldon has them."),
    Operation("get", "/v1/models", "Names of the models."),
    Operation("get", "/v1/models/{name}", "Whether the model can answer."),
    Operation("post", "/v1/models/{name}:predict", "KServe's V1 prediction.", body=Instances),
    Operation("get", "/test", "Whether the service is running."),
    Operation("get", "/detect_url", "Objects in a picture at a URL.", _FOUND, query=(_URL, _MODEL, *_BOXES)),
    Operation(
        "post", "/detect_upload", "Objects in a picture.", _FOUND, query=(_MODEL, *_BOXES), content=_PICTURE
    ),
    Operation(
        "get", "/classify_url", "Classes of a picture at a URL.", Any, query=(_URL, _MODEL, _TOP, _HEAT)
    ),
    Operation(
        "post",
        "/classify_upload",
        "Classes of a picture.",
        Any,
        query=(_MODEL, _TOP, _HEAT),
        content=_PICTURE,
    ),
    Operation(
        "post",
        "/v2/models/{name}/picture",
        "A picture, answered by the task of the model.",
        Any,
        query=(_TOP, _HEAT, *_BOXES),
        content=_PICTURE,
    ),
    Operation("get", "/metrics", "Figures for Prometheus.", str, media_type="text/plain"),
)


def document(models: Sequence[Model] = ()) -> Schema:
    """Return the whole document; the models give the names that paths may hold and requests that work."""
    types = list(
        dict.fromkeys(kind for one in OPERATIONS for kind in (one.answer, one.body) if kind is not None)
    )
    schemas, components = msgspec.json.schema_components([ErrorAnswer, *types], ref_template=_REFERENCE)
    schema_of = dict(zip([ErrorAnswer, *types], schemas, strict=True))
    examples = [_example(model) for model in models]
    components["InferRequest"]["examples"] = [one for one in examples if len(str(one)) < MAX_EXAMPLE]
    names = sorted({model.name for model in models})
    paths: dict[str, Schema] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _described(one, schema_of, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "weft serve",
            "version": __version__,
            "description": "The open inference protocol V2, the V1 routes of Seldon and KServe, pictures.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _described(operation: Operation, schema_of: Mapping[Any, Schema], names: list[str]) -> Schema:
    """Return one operation as OpenAPI has it."""
    refused = {"application/json": {"schema": schema_of[ErrorAnswer]}}
    answer = {operation.media_type: {"schema": schema_of[operation.answer]}}
    told: Schema = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": {
            "200": {"description": "done", "content": answer},
            "4XX": {"description": "refused", "content": refused},
            "5XX": {"description": "failed, or not ready", "content": refused},
        },
        "parameters": [*_path_parameters(operation.path, names), *map(_query_parameter, operation.query)],
    }
    bodies = dict(operation.content)
    if operation.body is not None:
        bodies["application/json"] = schema_of[operation.body]
    if bodies:
        content = {media_type: {"schema": schema} for media_type, schema in bodies.items()}
        told["requestBody"] = {"required": operation.body_required, "content": content}
    return told


def _path_parameters(path: str, names: list[str]) -> Iterable[Schema]:
    """Return the parameters in a path; `name` is the name of a model, one of `names` where they are told."""
    for name in re.findall(r"{(\w+)}", path):
        known = name == "name" and names
        schema: Schema = {"enum": names} if known else {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(query: Query) -> Schema:
    return {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "schema": msgspec.json.schema(query.kind),
    }


def _example(model: Model) -> Schema:
    """Return a request for one row of zeros."""
    inputs: list[Schema] = []
    for spec in model.inputs.values():
        shape = [max(size, 1) for size in spec.shape]
        zero: Any = {"BOOL": False, "BYTES": ""}.get(spec.datatype, 0)
        data = [zero] * math.prod(shape)
        inputs.append({"name": spec.name, "shape": shape, "datatype": spec.datatype, "data": data})
    return {"inputs": inputs}
