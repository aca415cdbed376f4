"""Documents: YAML, TOML and JSON files, read into typed models that are checked field by field.

    class FitFile(Document, frozen=True):
        table: str
        memory: str | int = "4GB"

    read_document(Path("fit.yaml"), FitFile)

A file that is not what the model says is refused with its path, the field, what it must be, and what to do:

    fit.yaml: memory must be text or a whole number, got a mapping; mend the file
    fit.yaml: its fields must be among table, target, memory, got tabel; did you mean table?
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

import msgspec

from weft.errors import UsageError
from weft.text import format_size, suggestion

LARGEST_BYTES = 16 << 20  # of a document: a larger file is another kind of file
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
_WRONG = re.compile(r"Expected (.+?)(?:, got `?([^`]*)`?)?(?: - at (`key` in )?`(\$.*?)`)?")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(\$.*?)`)?")
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `(\$.*?)`)?")


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The root of all models. A subclass repeats `frozen=True`; a field that it does not have is refused."""


T = TypeVar("T")


def read_document(path: Path, model: type[T], *, error: type[UsageError] = UsageError) -> T:
    """Return what a file holds as its model; the suffix tells whether it is YAML, TOML or JSON."""
    return fill_model(parse_document(path, error=error), model, path, error=error)


def read_text(path: Path, *, kind: str = "a text file", error: type[UsageError] = UsageError) -> str:
    """Return the text of a file in UTF-8, without a byte order mark."""
    try:
        if path.is_file() and path.stat().st_size > LARGEST_BYTES:
            raise error(
                f"{path} must be {kind} of at most {format_size(LARGEST_BYTES, trimmed=True)}, got more; "
                "name another file"
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise error(
            f"{path} must be {kind} in UTF-8, got the byte {wrong.object[wrong.start]:#04x} at {wrong.start}; "
            "save it as UTF-8"
        ) from None
    except OSError as wrong:
        raise error(f"{path} must be {kind} that can be read, got {wrong.strerror}; check the path") from None


def parse_document(path: Path, *, error: type[UsageError] = UsageError) -> Any:
    """Return what a YAML, TOML or JSON file holds: dicts, lists, text and numbers."""
    suffix = path.suffix.lower()
    kind = {".yaml": "YAML", ".yml": "YAML", ".toml": "TOML"}.get(suffix, "JSON")
    text = read_text(path, kind=f"a {kind} file", error=error)
    parse = {"YAML": _parse_yaml, "TOML": _parse_toml, "JSON": parse_json}[kind]
    try:
        return parse(text)
    except ModuleNotFoundError:
        raise error(
            f"{path} must be read by PyYAML, got no such package; install weft[learn], or use options"
        ) from None
    except RecursionError:
        raise error(f"{path} must be {kind} of a few levels, got too many; mend the file") from None
    except ValueError as wrong:
        reason = " ".join(str(wrong).split())
        raise error(f"{path} must be a readable {kind} file, got: {reason}; mend the file") from None


def _parse_yaml(text: str) -> Any:
    import yaml

    try:
        return parse_yaml(text)
    # PyYAML's constructors of `!!bool maybe` and `!!timestamp x` raise what their code happens to.
    except (yaml.YAMLError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(str(error)) from None


def parse_yaml(text: str | bytes) -> Any:
    """Return what a text in YAML 1.2 holds.

    PyYAML follows YAML 1.1, where `on` is true, `2:8` is 128, `1e-3` is text and `2024-01-01` is a date.
    """
    import yaml

    class CoreLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        """YAML with the scalars of YAML 1.2's core schema."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag == "tag:yaml.org,2002:merge"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            """Return a mapping; a key that stands there twice is refused, as YAML 1.2 asks."""
            seen: dict[Any, Any] = {}
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        first = seen[key.value].start_mark.line + 1
                        raise yaml.constructor.ConstructorError(
                            None, None, f"{key.value} twice, first in line {first}", key.start_mark
                        )
                    seen[key.value] = key
            return super().construct_mapping(node, deep)  # type: ignore[no-any-return]

    for kind, pattern, firsts in _CORE_SCALARS:
        CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), list(firsts))
    CoreLoader.add_constructor(
        "tag:yaml.org,2002:int", lambda loader, node: _whole(loader.construct_scalar(node))
    )
    return yaml.load(text, CoreLoader)


# Kind of scalar, the texts that are one, and their first characters.
_CORE_SCALARS = (
    ("null", r"^(?:~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
)


def _whole(text: str) -> int:
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _parse_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def parse_json(text: str | bytes) -> Any:
    """Return what JSON text holds; ValueError for whatever is not JSON, or is nested too deeply for a parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("too many levels of brackets") from None


def fill_model(found: Any, model: type[T], path: Path, *, error: type[UsageError] = UsageError) -> T:
    """Return parsed data as a model; an error names the path, the field, what it must be, and what was got."""
    try:
        return msgspec.convert(found, model)
    except msgspec.ValidationError as wrong:
        raise error(f"{path}: {describe_mismatch(str(wrong), model)}") from None
    except (RecursionError, OverflowError) as wrong:
        raise error(f"{path} must hold plain values, got {wrong}; mend the file") from None


def describe_mismatch(message: str, model: type) -> str:
    """Return msgspec's finding in must, got, next."""
    known = getattr(model, "__struct_fields__", ())
    if found := _UNKNOWN.fullmatch(message):
        inside = _place(found[2])
        if inside:
            known = getattr(_model_at(model, inside), "__struct_fields__", ())
        if not known:
            return f"{inside or 'it'} must have known fields, got {found[1]}; remove it"
        subject = f"{inside} must have fields" if inside else "its fields must be"
        return f"{subject} among {', '.join(known)}, got {found[1]}; {_meant(found[1], known)}"
    if found := _MISSING.fullmatch(message):
        return f"{_place(found[2]) or 'it'} must have the field {found[1]}, got none; add {found[1]}"
    if found := _WRONG.fullmatch(message):
        got = _word(found[2]) if found[2] else "another value"
        subject = f"names in {_place(found[4]) or 'it'}" if found[3] else _place(found[4]) or "it"
        return f"{subject} must be {_words(found[1])}, got {got}; mend the file"
    return f"its values must be valid, got: {message}; mend the file"


def _meant(given: str, known: tuple[str, ...]) -> str:
    """Return the name that was probably meant; the names that there are stand before it in the sentence."""
    advice = suggestion(given, known)
    return advice if advice.startswith("did you mean") else "remove it"


def _model_at(model: Any, path: str) -> Any:
    """Return the model of the part of a document at `queue` or `steps[0].fit`; None if there is none."""
    for name in re.split(r"[.\[]", path):
        if isinstance(model, type) and not name.endswith("]"):
            model = get_type_hints(model).get(name)
        model = next((part for part in _parts_of(model) if hasattr(part, "__struct_fields__")), None)
    return model


def _parts_of(kind: Any) -> Iterator[Any]:
    """Yield a type and the types that it is made of: `tuple[A, ...] | None` holds A."""
    yield kind
    for part in get_args(kind):
        yield from _parts_of(part)


def _place(path: str | None) -> str:
    """Return `params.depth` for `$.params.depth`, and nothing for the document itself."""
    return (path or "").removeprefix("$").removeprefix(".")


def _words(expected: str) -> str:
    """Return the types that msgspec expects as words: `str | int` is text or a whole number."""
    return re.sub(
        r"`([^`]*)`", lambda found: " or ".join(map(_word, reversed(found[1].split(" | ")))), expected
    )


def _word(kind: str) -> str:
    return _WORDS.get(kind.strip(), kind.strip())
