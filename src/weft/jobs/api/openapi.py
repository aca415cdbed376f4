"""The OpenAPI 3.1 document of the service, made from the table of operations and the types behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.jobs.api.operations import OPERATIONS, ApiOperation, types_of
from weft.jobs.api.types.common import ApiError
from weft.jobs.spec.model import JobSpec
from weft.version import __version__

Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/{name}"
_BINARY: Schema = {"type": "string", "format": "binary"}
_KINDS: Mapping[str, Schema] = {
    "str": {"type": "string", "minLength": 1},
    "int": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
    "path": {"type": "string", "minLength": 1},
}
_ABOUT = """Jobs on the machines you have. Times are milliseconds since 1970. Writes that use the session's cookie need
the header X-Weft-CSRF; others send Authorization: Bearer TOKEN. A single number that is not finite is "NaN",
"Infinity" or "-Infinity"; in lists of numbers it is null, and the field `odd` beside the list says where and which.
Ids of other users' jobs are answered as if there were none."""


def document() -> Schema:
    """Return the whole document."""
    kinds = [ApiError, JobSpec, *types_of()]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Schema] = {}
    for one in OPERATIONS:
        paths.setdefault(one.plain_path, {})[one.method] = _described(one, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weft jobs", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "weft_session"},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def _described(one: ApiOperation, schema_of: Mapping[Any, Schema]) -> Schema:
    """Return one operation as OpenAPI has it."""
    done: Schema = {"description": "done"}
    if one.answer is not None:
        shown = _BINARY if one.answer is bytes else schema_of.get(one.answer, {"type": "string"})
        done["content"] = {one.media_type: {"schema": shown}}
    refused = {"application/json": {"schema": schema_of[ApiError]}}
    operation_schema: Schema = {
        "operationId": one.name,
        "summary": one.summary,
        "x-access": one.access,
        "parameters": [*_path_parameters(one), *_query_parameters(one), *_header_parameters(one)],
        "responses": {
            str(one.status): done,
            "4XX": {"description": "refused", "content": refused},
            "5XX": {"description": "failed, or not ready", "content": refused},
        },
    }
    if one.access == "open":
        operation_schema["security"] = []
    if one.body is not None:
        shown = _BINARY if one.body is bytes else schema_of[one.body]
        operation_schema["requestBody"] = {
            "required": True,
            "content": {one.body_media_type: {"schema": shown}},
        }
    return operation_schema


def _path_parameters(one: ApiOperation) -> Iterator[Schema]:
    for name, kind in one.parameters:
        yield {"name": name, "in": "path", "required": True, "schema": _KINDS[kind]}


def _query_parameters(one: ApiOperation) -> Iterator[Schema]:
    (_,), parts = msgspec.json.schema_components([one.query], ref_template=_REFERENCE)
    fields: Schema = parts[one.query.__name__]
    for name, schema in fields.get("properties", {}).items():
        required = name in fields.get("required", ())
        yield {"name": name, "in": "query", "required": required, "schema": _without_null(schema)}


def _without_null(schema: Schema) -> Schema:
    """Return the schema of a parameter that may be left out, which a query cannot say by null."""
    rest = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    plain = {name: value for name, value in schema.items() if name != "anyOf"}
    if plain.get("default", 0) is None:
        del plain["default"]
    return plain | (rest[0] if len(rest) == 1 else {"anyOf": rest} if rest else {})


def _header_parameters(one: ApiOperation) -> Iterator[Schema]:
    if one.once:
        schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]*$"}
        yield {"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema}
