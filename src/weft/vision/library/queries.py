"""The query language of files: comparisons of metadata and of what is known of a file, with and, or, not.

    camera == "X100" and width > 800
    not (label == "cat" or category ~ "dog") and taken >= "2024-01-01"
    lens                                          has the key at all

Operators: == != < <= > >= and ~ (contains, whatever the case). A text that is a number compares as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.library.tables import fact, file, use

_TOKEN = re.compile(
    r"\s*(?:(?P<op>==|!=|<=|>=|<|>|~|\(|\))"
    r"|\"(?P<text>(?:[^\"\\]|\\.)*)\"|'(?P<text2>(?:[^'\\]|\\.)*)'"
    r"|(?P<word>[^\s()<>=!~\"']+))"
)
_LONGEST = 2000  # characters of a query
_DEEPEST = 30  # parentheses within parentheses
_COLUMNS = {
    "name": file.c.name,
    "kind": file.c.kind,
    "width": file.c.width,
    "height": file.c.height,
    "bytes": file.c.bytes,
    "category": file.c.category,
    "state": file.c.state,
    "review": file.c.review,
    "split": file.c.split,
    "confidence": file.c.confidence,
    "time_s": file.c.time_s,
    "duration_s": file.c.duration_s,
    "added_ms": file.c.added_ms,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


@dataclass(frozen=True)
class Compared:
    """A key, an operator and a value; without an operator: the key is there."""

    key: str
    operator: str = ""
    value: str = ""


@dataclass(frozen=True)
class Joined:
    """Conditions joined by `and` or `or`, or one turned around by `not`."""

    word: str
    parts: tuple[Condition, ...]


Condition = Compared | Joined


def parse_query(text: str) -> Condition | None:
    """Return what a query says; None for an empty one; one that cannot be read is refused with the place."""
    if len(text) > _LONGEST:
        raise PictureError(f"a query must have at most {_LONGEST} characters, got {len(text)}; write less")
    tokens = _tokens(text)
    if not tokens:
        return None
    parser = _QueryParser(tokens)
    found = parser.any_of(0)
    if parser.place < len(tokens):
        raise _wrong(f"and, or, or the end, got {tokens[parser.place][1]!r}")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong(f"names, values and operators, got {text[at : at + 10]!r}")
        kind = match.lastgroup or ""
        value = match[kind]
        if kind in ("text", "text2"):
            kind, value = "text", re.sub(r"\\(.)", r"\1", value)
        found.append((kind, value))
        at = match.end()
    return found


def _wrong(must: str) -> PictureError:
    return PictureError(f'a query must have {must}; write camera == "X" and width > 800')


class _QueryParser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.place = tokens, 0

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        self.place += 1
        return found

    def any_of(self, depth: int) -> Condition:
        return self._joined("or", lambda: self._joined("and", lambda: self._one(depth)))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._peek()[0] == "word" and self._peek()[1].lower() == word:
            self._next()
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _one(self, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise _wrong("fewer parentheses")
        kind, value = self._next()
        if (kind, value) == ("op", "("):
            found = self.any_of(depth + 1)
            if self._next() != ("op", ")"):
                raise _wrong("a closing parenthesis for each opening one")
            return found
        if kind == "word" and value.lower() == "not":
            return Joined("not", (self._one(depth + 1),))
        if kind not in ("word", "text") or (kind == "word" and value.lower() in ("and", "or")):
            raise _wrong(f"a key, got {value!r}" if kind != "end" else "a key at its end, got nothing")
        following, operator = self._peek()
        if following != "op" or operator not in (*_COMPARE, "~"):
            return Compared(value)
        self._next()
        kind, given = self._next()
        if kind not in ("word", "text"):
            raise _wrong(f"a value after {value} {operator}, got {given!r}")
        return Compared(value, operator, given)


def condition_of(found: Condition) -> sa.ColumnElement[bool]:
    """Return a query as a condition on rows of files."""
    if isinstance(found, Joined):
        parts = [condition_of(part) for part in found.parts]
        if found.word == "not":
            return sa.not_(parts[0])
        return sa.and_(*parts) if found.word == "and" else sa.or_(*parts)
    if found.key == "label":
        return _has_label(found)
    column = _COLUMNS.get(found.key)
    return _of_column(found, column) if column is not None else _of_fact(found)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


def _contains(column: Any, text: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column).contains(text.lower(), autoescape=True)


def _of_column(found: Compared, column: Any) -> sa.ColumnElement[bool]:
    if not found.operator:
        return sa.and_(column.is_not(None), sa.cast(column, sa.Text) != "")
    if found.operator == "~":
        return _contains(sa.cast(column, sa.Text), found.value)
    value: Any = found.value
    if not isinstance(column.type, (sa.String, sa.Text)):
        value = _number(found.value)
        if value is None:
            raise _wrong(f"a number after {found.key} {found.operator}, got {found.value!r}")
    compared = _COMPARE[found.operator](column, value)
    return sa.or_(compared, column.is_(None)) if found.operator == "!=" else compared


def _has_label(found: Compared) -> sa.ColumnElement[bool]:
    rows = sa.select(use.c.file_number).where(use.c.file_number == file.c.number)
    if found.operator == "~":
        return rows.where(_contains(use.c.label, found.value)).exists()
    if found.operator == "!=":
        return sa.not_(rows.where(use.c.label == found.value).exists())
    if found.operator and found.operator != "==":
        raise _wrong(f"== != or ~ after label, got {found.operator}")
    return (rows.where(use.c.label == found.value) if found.operator else rows).exists()


def _of_fact(found: Compared) -> sa.ColumnElement[bool]:
    rows = sa.select(fact.c.file_number).where(fact.c.file_number == file.c.number, fact.c.key == found.key)
    if not found.operator:
        return rows.exists()
    if found.operator == "~":
        return rows.where(_contains(fact.c.text, found.value)).exists()
    number = _number(found.value)
    if found.operator == "!=":
        return sa.not_(rows.where(_same(found.value, number)).exists())
    if found.operator == "==":
        return rows.where(_same(found.value, number)).exists()
    if number is not None:
        return rows.where(_COMPARE[found.operator](fact.c.value, number)).exists()
    return rows.where(_COMPARE[found.operator](fact.c.text, found.value)).exists()


def _same(text: str, number: float | None) -> sa.ColumnElement[bool]:
    same = fact.c.text == text
    return same if number is None else sa.or_(same, fact.c.value == number)
