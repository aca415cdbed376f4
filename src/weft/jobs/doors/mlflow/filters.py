"""The search language of MLflow: filters and orders, from text to data. Pure.

parse_filter("metrics.loss < 0.1 and params.`model name` = 'cnn' and tags.team LIKE 'vi%'")
parse_order("metrics.loss DESC")

A filter is comparisons joined by AND. Keys with blanks or signs stand in backticks or double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

from weft.errors import UsageError
from weft.text import shorten

Kind = Literal["metric", "param", "tag", "attribute", "dataset"]
Value: TypeAlias = "str | float | int | tuple[str, ...] | None"
LONGEST = 100_000  # characters of a filter
MOST_COMPARISONS = 200
MOST_ORDERS = 20
_KINDS: Mapping[str, Kind] = {
    "metric": "metric", "metrics": "metric",
    "param": "param", "params": "param", "parameter": "param", "parameters": "param",
    "tag": "tag", "tags": "tag",
    "attribute": "attribute", "attributes": "attribute", "attr": "attribute", "run": "attribute",
    "dataset": "dataset", "datasets": "dataset",
}  # fmt: skip
_ALIASES = {"created": "start_time", "Created": "start_time",
            "run name": "run_name", "Run name": "run_name", "Run Name": "run_name"}  # fmt: skip
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<ticked>`[^`]*`)
      | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
      | (?P<sign><=|>=|!=|<>|=|<|>|\(|\)|,)
      | (?P<word>[A-Za-z_][\w:/-]*(?:\.(?![`"'])[\w:/-]+)*)
      | (?P<dot>\.)
    )""",
    re.VERBOSE,
)
_NUMERIC = frozenset({"=", "!=", "<", "<=", ">", ">="})
_TEXTUAL = frozenset({"=", "!=", "LIKE", "ILIKE"})
_COMPARATORS: Mapping[str, frozenset[str]] = {
    "metric": _NUMERIC,
    "number": _NUMERIC,
    "param": _TEXTUAL | {"IS NULL", "IS NOT NULL"},
    "tag": _TEXTUAL | {"IS NULL", "IS NOT NULL"},
    "attribute": _TEXTUAL | {"IN", "NOT IN"},
    "dataset": _TEXTUAL | {"IN", "NOT IN"},
}


class FilterError(UsageError):
    """A filter or an order that is not in MLflow's search language."""


@dataclass(frozen=True)
class Attributes:
    """The attributes that may be compared: of runs, experiments, registered models or their versions."""

    texts: frozenset[str]
    numbers: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.texts | self.numbers


RUN_ATTRIBUTES = Attributes(
    frozenset({"run_id", "run_name", "user_id", "status", "artifact_uri"}),
    frozenset({"start_time", "end_time"}),
)
EXPERIMENT_ATTRIBUTES = Attributes(
    frozenset({"name", "experiment_id"}), frozenset({"creation_time", "last_update_time"})
)
_CHANGED = frozenset({"creation_timestamp", "last_updated_timestamp"})
MODEL_ATTRIBUTES = Attributes(frozenset({"name"}), _CHANGED)
VERSION_ATTRIBUTES = Attributes(frozenset({"name", "run_id", "source_path"}), _CHANGED | {"version_number"})
DATASET_ATTRIBUTES = frozenset({"name", "digest", "context"})


@dataclass(frozen=True)
class FilterComparison:
    """One condition: `metrics.loss < 0.1`."""

    kind: Kind
    key: str
    comparator: str  # = != < <= > >= LIKE ILIKE IN NOT IN IS NULL IS NOT NULL
    value: Value


@dataclass(frozen=True)
class Order:
    """One key to sort by."""

    kind: Kind
    key: str
    ascending: bool = True


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


def parse_filter(text: str, attributes: Attributes = RUN_ATTRIBUTES) -> tuple[FilterComparison, ...]:
    """Return the conditions of a filter; none for an empty one."""
    tokens = _tokens(text)
    if not tokens:
        return ()
    reader = _FilterReader(tokens, text, attributes)
    found = [reader.comparison()]
    while not reader.ended:
        reader.keyword("AND")
        found.append(reader.comparison())
        if len(found) > MOST_COMPARISONS:
            raise FilterError(
                f"a filter must have at most {MOST_COMPARISONS} comparisons, got more; ask twice"
            )
    return tuple(found)


def parse_order(text: str, attributes: Attributes = RUN_ATTRIBUTES) -> Order:
    """Return what `metrics.loss DESC` means."""
    reader = _FilterReader(_tokens(text), text, attributes)
    kind, key = reader.identifier()
    if kind == "dataset":
        reader.refuse("metrics, params, tags or attributes in an order")
    direction = reader.word() if not reader.ended else "ASC"
    if direction.upper() not in ("ASC", "DESC") or not reader.ended:
        reader.refuse("ASC or DESC at the end")
    return Order(kind, key, direction.upper() == "ASC")


def parse_orders(texts: Sequence[str], attributes: Attributes = RUN_ATTRIBUTES) -> tuple[Order, ...]:
    """Return the keys to sort by, the first decides first."""
    if len(texts) > MOST_ORDERS:
        raise FilterError(f"order_by must have at most {MOST_ORDERS} keys, got {len(texts)}; leave some out")
    return tuple(parse_order(text, attributes) for text in texts)


def _tokens(text: str) -> list[_Token]:
    if len(text) > LONGEST:
        raise FilterError(f"a filter must have at most {LONGEST} characters, got {len(text)}; shorten it")
    tokens: list[_Token] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or match.end() == place or match.lastgroup is None:
            raise FilterError(
                f"a filter must be comparisons joined by AND, got {shorten(text[place:])} in it; "
                "write metrics.loss < 0.1 AND params.model = 'cnn'"
            )
        tokens.append(_Token(match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return tokens


class _FilterReader:
    """Takes tokens one after the other."""

    def __init__(self, tokens: Sequence[_Token], text: str, attributes: Attributes) -> None:
        self._tokens, self._text, self._attributes = tokens, text, attributes
        self._place = 0

    @property
    def ended(self) -> bool:
        return self._place >= len(self._tokens)

    def refuse(self, wanted: str) -> NoReturn:
        got = self._tokens[self._place - 1].text if self._place else "nothing"
        raise FilterError(
            f"a filter must have {wanted}, got {shorten(got)} in {shorten(self._text)}; see MLflow's search syntax"
        )

    def take(self, wanted: str) -> _Token:
        if self.ended:
            raise FilterError(
                f"a filter must have {wanted}, got its end in {shorten(self._text)}; complete it"
            )
        self._place += 1
        return self._tokens[self._place - 1]

    def peek(self, kind: str) -> bool:
        return not self.ended and self._tokens[self._place].kind == kind

    def word(self) -> str:
        token = self.take("a word")
        return token.text if token.kind == "word" else self.refuse("a word")

    def keyword(self, *wanted: str) -> str:
        found = self.take(" or ".join(wanted))
        if found.kind != "word" or found.text.upper() not in wanted:
            self.refuse(" or ".join(wanted))
        return found.text.upper()

    def identifier(self) -> tuple[Kind, str]:
        """Return the kind and the key of `metrics.loss`, `` params.`a b` `` or `start_time`."""
        first = self.take("a name like metrics.loss")
        text = _unquoted(first) if first.kind in ("ticked", "text") else first.text
        if first.kind not in ("word", "ticked", "text"):
            self.refuse("a name like metrics.loss")
        if self.peek("dot"):
            self.take("a dot")
            key = self.take("a key")
            if key.kind not in ("word", "ticked", "text"):
                self.refuse("a key after the dot")
            return self._named(text, _unquoted(key))
        prefix, dot, rest = text.partition(".")
        return self._named(prefix, rest) if dot and first.kind == "word" else self._named("attribute", text)

    def _named(self, prefix: str, key: str) -> tuple[Kind, str]:
        kind = _KINDS.get(prefix)
        if kind is None or not key:
            self.refuse("metrics., params., tags., attributes. or datasets. before a key")
        if kind == "attribute":
            key = _ALIASES.get(key, key)
            if key not in self._attributes.all:
                self.refuse(f"one of the attributes {', '.join(sorted(self._attributes.all))}")
        if kind == "dataset" and key not in DATASET_ATTRIBUTES:
            self.refuse(f"one of the attributes {', '.join(sorted(DATASET_ATTRIBUTES))} of data sets")
        return kind, key

    def comparison(self) -> FilterComparison:
        kind, key = self.identifier()
        comparator = self._comparator()
        numeric = kind == "metric" or (kind == "attribute" and key in self._attributes.numbers)
        if comparator not in _COMPARATORS["number" if numeric else kind]:
            known = ", ".join(sorted(_COMPARATORS["number" if numeric else kind]))
            self.refuse(f"one of {known} after {key}")
        return FilterComparison(kind, key, comparator, self._value(comparator, kind, numeric))

    def _comparator(self) -> str:
        token = self.take("a comparison")
        if token.kind == "sign" and token.text in _NUMERIC | {"<>"}:
            return "!=" if token.text == "<>" else token.text
        word = token.text.upper()
        if token.kind != "word" or word not in ("LIKE", "ILIKE", "IN", "NOT", "IS"):
            self.refuse("a comparison (= != < <= > >= LIKE ILIKE IN, IS NULL)")
        if word == "NOT":
            return f"NOT {self.keyword('IN')}"
        if word == "IS":
            return "IS NULL" if self.keyword("NULL", "NOT") == "NULL" else f"IS NOT {self.keyword('NULL')}"
        return word

    def _value(self, comparator: str, kind: Kind, numeric: bool) -> Value:
        if comparator.startswith("IS "):
            return None
        if comparator in ("IN", "NOT IN"):
            return self._list()
        token = self.take("a value")
        if numeric:
            text = _unquoted(token)
            if token.kind != "number" and not (kind == "attribute" and re.fullmatch(r"\d{1,20}", text)):
                self.refuse("a number to compare with")
            return float(text)
        if token.kind != "text":
            self.refuse("a value in quotes to compare with")
        return _unquoted(token)

    def _list(self) -> tuple[str, ...]:
        if self.take("a list").text != "(":
            self.refuse("a list like ('a', 'b')")
        values: list[str] = []
        while True:
            token = self.take("a value in quotes")
            if token.kind != "text":
                self.refuse("values in quotes in a list")
            values.append(_unquoted(token))
            following = self.take("a comma or a closing bracket").text
            if following == ")":
                return tuple(values)
            if following != ",":
                self.refuse("a comma or a closing bracket")


def _unquoted(token: _Token) -> str:
    if token.kind not in ("text", "ticked"):
        return token.text
    quote = token.text[0]
    return token.text[1:-1].replace(quote * 2, quote)
