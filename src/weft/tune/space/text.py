"""The text form of domains, as the command line and study files write them.

lr=log:1e-5:1e-1              numbers by their logarithm
dropout=float:0:0.5           numbers; float:0:1:0.1 in steps
width=int:16:512:log          whole numbers; int:16:512:16 in steps
optimizer=adam,sgd            choices
batch=ordered:32,64,128       choices in an order
momentum=float:0.8:0.99 if optimizer == sgd
seed=7                        one value
"""

from __future__ import annotations

import re
from typing import Any

from weft.text import shorten, suggestion
from weft.tune.space.domains import (
    Choices,
    Domain,
    FloatRange,
    IntRange,
    LogRange,
    OrderedChoices,
    SpaceError,
    Value,
)

KINDS = ("float", "log", "int", "ordered")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,99}")


def parse_parameter(text: str) -> tuple[str, Domain]:
    """Return the name and the domain of `NAME=DOMAIN`."""
    name, found, rest = text.partition("=")
    if not found or not rest.strip():
        raise SpaceError(
            f"a parameter must be NAME=DOMAIN, got {shorten(text)}; write lr=log:1e-5:1e-1 or optimizer=adam,sgd"
        )
    return check_name(name.strip()), parse_domain(rest)


def check_name(name: str) -> str:
    """Return the name of a parameter, or refuse it."""
    if not _NAME.fullmatch(name):
        raise SpaceError(
            f"a parameter's name must be letters, digits, dots, dashes and underscores, got {shorten(name)}; "
            "write lr or optimizer.lr"
        )
    return name


def parse_domain(text: str) -> Domain:
    """Return the domain of a text, with its condition."""
    body, found, when = text.partition(" if ")
    domain = _parse(body.strip())
    return domain.with_condition(when.strip()) if found else domain


def _parse(text: str) -> Domain:
    kind, colon, rest = text.partition(":")
    if not colon or kind not in KINDS:
        if colon and "," not in text and re.fullmatch(r"[a-z]+", kind) and rest[:1].isdigit():
            raise SpaceError(
                f"a domain must be of one of the kinds {', '.join(KINDS)}, got {kind}; {suggestion(kind, KINDS)}"
            )
        return Choices(values=_values(text))
    if kind == "ordered":
        return OrderedChoices(values=_values(rest))
    parts = [part.strip() for part in rest.split(":")]
    if not 2 <= len(parts) <= (2 if kind == "log" else 3):
        raise SpaceError(f"a range must be {kind}:LOW:HIGH, got {shorten(text)}; write {kind}:1:10")
    if kind == "int":
        log = parts[2:] == ["log"]
        numbers = [_whole(part, text) for part in (parts[:2] if log else parts)]
        return IntRange(None, *numbers, **({"log": True} if log else {}))  # type: ignore[arg-type]
    floats = [_float(part, text) for part in parts]
    return LogRange(None, *floats) if kind == "log" else FloatRange(None, *floats)


def _values(text: str) -> tuple[Value, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise SpaceError(f"choices must have a value between commas, got {shorten(text)}; write adam,sgd")
    return tuple(map(parse_value, parts))


def parse_value(text: str) -> Value:
    """Return a number, true, false or null where a text is one, else the text."""
    words: dict[str, Value] = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _whole(text: str, given: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise SpaceError(
            f"the bounds of int must be whole numbers, got {shorten(text)} in {shorten(given)}; write int:16:512"
        )
    return int(text)


def _float(text: str, given: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise SpaceError(
            f"a bound must be a number, got {shorten(text)} in {shorten(given)}; write float:0:1"
        )
    return float(text)


def read_domain(given: Any, name: str) -> Domain:
    """Return the domain that a value of a file or of Python stands for: text, a list, a mapping, or one value."""
    if isinstance(given, Domain):
        return given
    try:
        if isinstance(given, str):
            return parse_domain(given)
        if isinstance(given, (list, tuple)):
            return Choices(values=tuple(given))
        if isinstance(given, dict):
            return _read_mapping(given)
        return Choices(values=(given,))
    except SpaceError as error:
        raise SpaceError(f"{name}: {error}") from None


def _read_mapping(given: dict[str, Any]) -> Domain:
    kinds = {"choices": Choices, "ordered": OrderedChoices}
    named = [kind for kind in kinds if isinstance(given.get(kind), (list, tuple))]
    if len(named) != 1 or set(given) - {named[0], "if"}:
        raise SpaceError(
            f"a domain must be text, a list, or a mapping of choices or ordered, got {shorten(given)}; "
            "write {choices: [adam, sgd], if: deep == true}"
        )
    when = given.get("if")
    return kinds[named[0]](None if when is None else str(when), tuple(given[named[0]]))
