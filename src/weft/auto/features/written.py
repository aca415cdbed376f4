"""Dates as people write them, read inside an exported graph: text of a format becomes seconds since 1970 in UTC.

The runs of digits of a text are its parts in the order of the format; months with names and the halves of the day are
looked for by themselves. A text without digits is a missing date.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from weft.auto.features.blocks import DAY_S, GraphMath
from weft.auto.reading.texts import ISO
from weft.learn.onnx import OnnxGraph

PARTS = {"%Y": 4, "%y": 2, "%m": 2, "%d": 2, "%H": 2, "%I": 2, "%M": 2, "%S": 2}  # with their digits
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NONE = "nan"  # fills rows with fewer words up, and is a number
ISO_FORMAT = "%Y-%m-%d %H:%M:%S"
CENTURY_FROM = 69.0  # a year of two digits from here on is of the last century


def onnx_seconds(graph: OnnxGraph, text: str, form: str) -> str:
    """Add the reading of (batch, 1) texts of a format; return the name of their (batch, 1) seconds since 1970."""
    return _WrittenDates(graph, text, form or ISO).seconds()


class _WrittenDates:
    """The nodes that read one column of texts."""

    def __init__(self, graph: OnnxGraph, text: str, form: str) -> None:
        self.graph, self.math = graph, GraphMath(graph)
        self.is_iso = form == ISO
        self.form = ISO_FORMAT if self.is_iso else form
        self.text = graph.add("Squeeze", text, graph.constant(np.array([1])))

    def seconds(self) -> str:
        math, known = self.math, self._parts()
        year, month = known.get("%Y") or self._century(known["%y"]), known.get("%m") or self._month()
        seconds = math.times(self._days(year, month, known.get("%d")), DAY_S)
        hour = known.get("%H") or (self._half_day(known["%I"]) if "%I" in known else None)
        for part, scale in ((hour, 3600.0), (known.get("%M"), 60.0), (known.get("%S"), 1.0)):
            if part is not None:
                seconds = math.plus(seconds, math.times(self._or_zero(part), scale))
        return math.minus(seconds, self._offset()) if self.is_iso else seconds

    def _words(self, expression: str) -> str:
        """Add the words of each text, in a table with one column of no words at its end."""
        graph = self.graph
        found = graph.add(
            "Tokenizer", self.text, domain="com.microsoft", mark=0, mincharnum=1, pad_value=NONE, tokenexp=expression
        )  # fmt: skip
        shape = graph.add("Concat", graph.add("Shape", self.text), graph.constant(np.array([1])), axis=0)
        return graph.add(
            "Concat", found, graph.add("Expand", graph.constant(np.array([NONE])), shape), axis=1
        )

    def _parts(self) -> dict[str, str]:
        """Add the parts of the dates that digits tell."""
        graph, names = self.graph, re.findall(r"%[YymdHIMS]", self.form)
        runs = [one for one in re.split(r"[^%A-Za-z]+", re.sub(r"%[bp]", " ", self.form)) if "%" in one]
        digits = r"[0-9]+(?:\.[0-9]+)?" if self.is_iso else r"[0-9]+"
        numbers = graph.cast(self._words(digits), np.float64)
        rows = graph.add("Shape", self.text)
        room = graph.add("Concat", rows, graph.constant(np.array([len(names)])), axis=0)
        numbers = graph.add(
            "Concat", numbers, graph.add("Expand", graph.constant(np.array([np.nan])), room), axis=1
        )
        found = {}
        for place, run in enumerate(runs):
            number = graph.add("Gather", numbers, graph.constant(np.array([place])), axis=1)
            for name in reversed(re.findall(r"%[YymdHIMS]", run)):
                if run == name:
                    found[name] = number
                    break
                base = 10.0 ** PARTS[name]
                above = self.math.floored(number, base)
                found[name] = self.math.minus(number, self.math.times(above, base))
                number = above
        return found

    def _century(self, year: str) -> str:
        late = self._at_least(year, CENTURY_FROM)
        return self.math.minus(self.math.plus(year, 2000.0), self.math.times(late, 100.0))

    def _at_least(self, value: str, least: float) -> str:
        limit = self.graph.constant(np.full(1, least))
        return self.graph.cast(self.graph.add("GreaterOrEqual", value, limit), np.float64)

    def _first(self, expression: str, meanings: dict[str, float], other: float) -> str:
        """Add what the first word that an expression finds means."""
        graph = self.graph
        first = graph.add("Gather", self._words(expression), graph.constant(np.array([0])), axis=1)
        codes = {word: place for place, word in enumerate(meanings)}
        place = graph.add(
            "LabelEncoder",
            first,
            domain="ai.onnx.ml",
            keys_strings=list(codes),
            values_int64s=list(codes.values()),
            default_int64=len(codes),
        )
        return graph.add("Gather", graph.constant(np.array([*meanings.values(), other])), place, axis=0)

    def _month(self) -> str:
        meanings = {
            spelt: number + 1.0
            for number, name in enumerate(MONTHS)
            for spelt in (name, name.capitalize(), name.upper())
        }
        return self._first("(?i)" + "|".join(MONTHS), meanings, np.nan)

    def _half_day(self, hour: str) -> str:
        late = self._first("(?i)[ap]m", {"pm": 12.0, "PM": 12.0, "Pm": 12.0}, 0.0)
        whole = self.math.minus(hour, self.math.times(self.math.floored(hour, 12.0), 12.0))
        return self.math.plus(whole, late)

    def _offset(self) -> str:
        """Add the seconds by which the clock of a text is before UTC's."""
        meanings = {
            f"{sign}{minutes // 60:02d}:{minutes % 60:02d}": 60.0 * (minutes if sign == "+" else -minutes)
            for minutes in range(0, 14 * 60 + 1, 15)
            for sign in "+-"
        }
        return self._first("[+-][0-9]{2}:[0-9]{2}$", meanings, 0.0)

    def _or_zero(self, part: str) -> str:
        return self.graph.add("Where", self.graph.add("IsNaN", part), self.graph.constant(np.zeros(1)), part)

    def _days(self, year: str, month: str, day: str | None) -> str:
        """Add the days since 1970 of a date: years are counted from March, so that leap days come last."""
        math = self.math
        late = self._at_least(month, 3.0)
        year = math.minus(math.plus(year, late), 1.0)
        era = math.floored(year, 400.0)
        of_era = math.minus(year, math.times(era, 400.0))
        shifted = math.minus(math.plus(month, 9.0), math.times(late, 12.0))  # March is 0
        of_year = math.floored(math.plus(math.times(shifted, 153.0), 2.0), 5.0)
        of_year = of_year if day is None else math.minus(math.plus(of_year, day), 1.0)
        leaps = math.minus(math.floored(of_era, 4.0), math.floored(of_era, 100.0))
        whole = math.plus(math.plus(math.times(of_era, 365.0), leaps), of_year)
        return math.minus(math.plus(math.times(era, 146097.0), whole), 719468.0)


def written(seconds: Any, form: str) -> list[str]:
    """Return seconds since 1970 as texts of a format; "" for missing ones."""
    from datetime import UTC, datetime, timedelta

    start = datetime(1970, 1, 1, tzinfo=UTC)
    shown = "%Y-%m-%dT%H:%M:%S.%f" if form in ("", ISO) else form
    return [
        "" if value != value else (start + timedelta(seconds=float(value))).strftime(shown)
        for value in seconds
    ]
