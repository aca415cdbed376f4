"""Writes the TypeScript types of the API's requests and answers for the web pages, from its OpenAPI document.

python tools/console_types.py           write src/weft/console/web/src/api/types.ts
python tools/console_types.py --check   exit with 1 where that file is not what would be written
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.jobs.api.openapi import document

ROOT = Path(__file__).resolve().parent.parent
TYPES = ROOT / "src" / "weft" / "console" / "web" / "src" / "api" / "types.ts"
HEAD = "/** Requests and answers of the API. Written by tools/console_types.py; do not edit. */\n"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}

Schema = Mapping[str, Any]


def typescript(openapi: Schema) -> str:
    """Return the declarations of all schemas of an OpenAPI document."""
    schemas = openapi["components"]["schemas"]
    return HEAD + "".join(f"\n{_declaration(name, schemas[name])}" for name in sorted(schemas))


def _declaration(name: str, schema: Schema) -> str:
    told = str(schema.get("description", "")).split("\n")[0]
    comment = f"/** {told} */\n" if told else ""
    if schema.get("type") != "object":
        return f"{comment}export type {name} = {_type(schema)};\n"
    required = set(schema.get("required", ()))
    fields = [
        f"  {_key(key)}{'' if key in required else '?'}: {_type(inner)};\n"
        for key, inner in schema.get("properties", {}).items()
    ]
    return f"{comment}export interface {name} {{\n{''.join(fields)}}}\n"


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _type(schema: Schema) -> str:
    """Return the type of one schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(_type(part) for part in schema[key]))
    if schema.get("type") == "array":
        return _array(schema)
    if schema.get("type") == "object":
        return _record(schema)
    return PLAIN.get(str(schema.get("type")), "unknown")


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(part) for part in schema['prefixItems'])}]"
    inner = _type(schema.get("items") or {})
    return f"({inner})[]" if "|" in inner else f"{inner}[]"


def _record(schema: Schema) -> str:
    values = schema.get("additionalProperties")
    return f"Record<string, {_type(values) if isinstance(values, Mapping) else 'unknown'}>"


def main() -> int:
    wanted = typescript(document())
    if "--check" not in sys.argv[1:]:
        TYPES.write_text(wanted)
        return 0
    if TYPES.read_text() == wanted:
        return 0
    print(
        "the types of the pages must be those of the API, got others; run: python tools/console_types.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
