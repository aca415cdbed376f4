"""What `/openapi.json` says: every route of the server, in OpenAPI 3.1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.serve.server.models.model import Model
from weft.serve.server.protocols.tensors import NUMPY
from weft.version import __version__

Schema = dict[str, Any]


def document(models: Sequence[Model] = ()) -> Schema:
    """All routes; where models may be named, their names and a request that works."""
    names = sorted({model.name for model in models})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "weft serve",
            "version": __version__,
            "description": "The open inference protocol V2, Seldon's and KServe's V1 doors, and doors for pictures.",
        },
        "paths": {**_v2(names), **_repository(names), **_v1(names), **_pictures(names), **_others()},
        "components": {
            "schemas": _schemas([_example(model) for model in models]),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _v2(names: list[str]) -> Schema:
    name, version = _path("name", names), _path("version")
    paths: Schema = {
        "/v2": {"get": _operation("The server: its name, version and extensions.", _ref("Server"))},
        "/v2/health/live": {"get": _operation("Whether the server lives.", {"type": "object"})},
        "/v2/health/ready": {"get": _operation("Whether requests are welcome.", {"type": "object"})},
        "/v2/models/stats": {"get": _operation("Statistics of all models.", _ref("Statistics"))},
    }
    for base, parameters in (
        ("/v2/models/{name}", [name]),
        ("/v2/models/{name}/versions/{version}", [name, version]),
    ):
        paths[base] = {"get": _operation("A model: inputs, outputs, versions.", _ref("Model"), parameters)}
        paths[f"{base}/ready"] = {"get": _operation("Whether it can answer.", {"type": "object"}, parameters)}
        paths[f"{base}/config"] = {"get": _operation("How it is run.", {"type": "object"}, parameters)}
        paths[f"{base}/stats"] = {"get": _operation("What it has done.", _ref("Statistics"), parameters)}
        paths[f"{base}/infer"] = {
            "post": _operation(
                "Inference. With Inference-Header-Content-Length the tensors' bytes follow the JSON.",
                _ref("InferResponse"),
                parameters,
                body=_json(_ref("InferRequest")),
            )
        }
    return paths


def _repository(names: list[str]) -> Schema:
    base = "/v2/repository/models/{name}"
    load = {
        "type": "object",
        "properties": {"parameters": {"type": "object", "properties": {"version": {"type": "string"}}}},
    }
    entry = {
        "type": "object",
        "required": ["name", "version", "state", "reason"],
        "properties": {key: {"type": "string"} for key in ("name", "version", "state", "reason")},
    }
    ready = {"type": "object", "properties": {"ready": {"type": "boolean"}}}
    name = _path("name", names)
    return {
        "/v2/repository/index": {
            "post": _operation(
                "All models, loaded or not.",
                {"type": "array", "items": entry},
                body=_json(ready),
                needed=False,
            )
        },
        f"{base}/load": {
            "post": _operation(
                "Load, or load again.", {"type": "object"}, [name], body=_json(load), needed=False
            )
        },
        f"{base}/unload": {"post": _operation("Unload.", {"type": "object"}, [name])},
        f"{base}/traffic": {
            "get": _operation("Canary and shadow.", _ref("Traffic"), [name]),
            "post": _operation("Set them.", _ref("Traffic"), [name], body=_json(_ref("Traffic"))),
        },
    }


def _v1(names: list[str]) -> Schema:
    message = {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {
                "type": "object",
                "properties": {
                    "names": {"type": "array", "items": {"type": "string"}},
                    "ndarray": {"type": "array"},
                    "tensor": {
                        "type": "object",
                        "required": ["shape", "values"],
                        "properties": {
                            "shape": {"type": "array", "items": {"type": "integer"}},
                            "values": {"type": "array"},
                        },
                    },
                },
            },
            "meta": {"type": "object"},
        },
    }
    instances = {"type": "object", "required": ["instances"], "properties": {"instances": {"type": "array"}}}
    predict = _operation("KServe's V1.", {"type": "object"}, [_path("name", names)], body=_json(instances))
    seldon = _operation("Seldon's predictions.", {"type": "object"}, [_query("model")], body=_json(message))
    return {
        "/api/v1.0/predictions": {"post": seldon},
        "/api/v0.1/predictions": {"post": seldon},
        "/v1/models": {"get": _operation("Names of the models.", {"type": "object"})},
        "/v1/models/{name}": {
            "get": _operation("Whether it can answer.", {"type": "object"}, [_path("name", names)])
        },
        "/v1/models/{name}:predict": {"post": predict},
    }


def _pictures(names: list[str]) -> Schema:
    binary = {"type": "string", "format": "binary"}
    form = {"type": "object", "required": ["file"], "properties": {"file": binary}}
    body = {
        "image/jpeg": {"schema": binary},
        "image/png": {"schema": binary},
        "multipart/form-data": {"schema": form},
    }
    found = {"type": "array", "items": {"type": "object"}}
    model, url = _query("model"), _query("url", needed=True)
    tuning = [_query("confidence", "number"), _query("overlap", "number")]
    top = _query("top", "integer")
    return {
        "/test": {"get": _operation("Whether the service is running.", {"type": "object"})},
        "/detect_url": {"get": _operation("Objects in a picture at a URL.", found, [url, model, *tuning])},
        "/detect_upload": {"post": _operation("Objects in a picture.", found, [model, *tuning], body=body)},
        "/classify_url": {"get": _operation("Classes of a picture at a URL.", found, [url, model, top])},
        "/classify_upload": {"post": _operation("Classes of a picture.", found, [model, top], body=body)},
        "/v2/models/{name}/picture": {
            "post": _operation(
                "A picture, by the model's task.", {}, [_path("name", names), top, *tuning], body=body
            )
        },
    }


def _others() -> Schema:
    text = {"text/plain": {"schema": {"type": "string"}}}
    metrics = _operation("What Prometheus reads.", {})
    metrics["responses"]["200"]["content"] = text
    return {"/metrics": {"get": metrics}}


def _schemas(examples: list[Schema]) -> Schema:
    parameters = {"type": "object"}
    tensor = {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"enum": list(NUMPY)},
    }
    spec = {"type": "object", "required": list(tensor), "properties": tensor}
    # JSON has neither NaN nor infinities: a number that is one is null.
    data = {"type": "array"}
    named = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    return {
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
        "Server": {"type": "object", "required": ["name", "version", "extensions"]},
        "Model": {
            "type": "object",
            "required": ["name", "versions", "platform", "inputs", "outputs"],
            "properties": {
                "inputs": {"type": "array", "items": spec},
                "outputs": {"type": "array", "items": spec},
            },
        },
        "Statistics": {
            "type": "object",
            "required": ["model_stats"],
            "properties": {"model_stats": {"type": "array", "items": {"type": "object"}}},
        },
        "InferRequest": {
            "type": "object",
            "required": ["inputs"],
            "examples": [example for example in examples if len(str(example)) < 10_000],
            "properties": {
                "id": {"type": "string"},
                "parameters": parameters,
                "inputs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": [*tensor, "data"],
                        "properties": {**tensor, "parameters": parameters, "data": data},
                    },
                },
                "outputs": {"type": "array", "items": named},
            },
        },
        "InferResponse": {
            "type": "object",
            "required": ["model_name", "model_version", "outputs"],
            "properties": {
                "outputs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": list(tensor),
                        "properties": {**tensor, "data": data},
                    },
                },
            },
        },
        "Traffic": {
            "type": "object",
            "properties": {
                "canary": {"type": ["string", "null"]},
                "percent": {"type": "number", "minimum": 0, "maximum": 100},
                "shadow": {"type": ["string", "null"]},
            },
        },
    }


def _operation(
    summary: str,
    answer: Schema,
    parameters: list[Schema] | None = None,
    *,
    body: Schema | None = None,
    needed: bool = True,
) -> Schema:
    error = _json(_ref("Error"))
    responses: Schema = {
        "200": {"description": "done", "content": _json(answer)},
        "4XX": {"description": "refused", "content": error},
        "5XX": {"description": "failed, or not ready", "content": error},
    }
    found: Schema = {"summary": summary, "responses": responses}
    if parameters:
        found["parameters"] = parameters
    if body is not None:
        found["requestBody"] = {"required": needed, "content": body}
    return found


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _path(name: str, known: Sequence[str] = ()) -> Schema:
    schema: Schema = {"enum": list(known)} if known else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _example(model: Model) -> Schema:
    """Zeros, one row of them."""
    inputs: list[Schema] = []
    for spec in model.inputs.values():
        shape = [max(size, 1) for size in spec.shape]
        nothing: Any = {"BOOL": False, "BYTES": ""}.get(spec.datatype, 0)
        data = [nothing] * math.prod(shape)
        inputs.append({"name": spec.name, "shape": shape, "datatype": spec.datatype, "data": data})
    return {"inputs": inputs}


def _query(name: str, kind: str = "string", *, needed: bool = False) -> Schema:
    return {"name": name, "in": "query", "required": needed, "schema": {"type": kind}}
