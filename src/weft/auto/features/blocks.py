"""Blocks of features from raw columns of numbers, categories and dates.

A block is fitted once, on training rows. `transform` computes it in NumPy and `onnx` adds the same arithmetic to a
graph, so that a served model answers as the one in Python does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from weft.auto.frames import RawTable
from weft.learn.onnx import OnnxGraph

Array = np.ndarray[Any, Any]

DAY_S = 86400.0
TINY = 1e-9  # added to what divides, which may be zero


class FeatureBlock(Protocol):
    """Some columns of features. `transform` takes any rows; `onnx` names the raw inputs, each (batch, 1)."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def transform(self, table: RawTable) -> Any:
        """Return (rows, names), a float64 array or a CSR matrix."""
        ...

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        """Add the block to a graph; return the name of its (batch, names) tensor of float64."""
        ...


@dataclass(frozen=True)
class NumberColumns:
    """Numbers as they are, NaN where missing."""

    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns

    def transform(self, table: RawTable) -> Array:
        return np.column_stack([table.values(name) for name in self.columns])

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        return graph.add("Concat", *(inputs[name] for name in self.columns), axis=1)


@dataclass(frozen=True)
class MissingMarks:
    """Marks of missing numbers: 1 where a number is missing, else 0."""

    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name} is missing" for name in self.columns)

    def transform(self, table: RawTable) -> Array:
        return np.column_stack([np.isnan(table.values(name)) for name in self.columns]).astype(np.float64)

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        joined = graph.add("Concat", *(inputs[name] for name in self.columns), axis=1)
        return graph.cast(graph.add("IsNaN", joined), np.float64)


@dataclass(frozen=True)
class NumberPairs:
    """Products, differences and quotients of pairs of numbers."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{a} {sign} {b}" for sign in ("*", "-", "/") for a, b in self.pairs)

    def transform(self, table: RawTable) -> Array:
        left = np.column_stack([table.values(a) for a, _ in self.pairs])
        right = np.column_stack([table.values(b) for _, b in self.pairs])
        return np.hstack([left * right, left - right, left / (np.abs(right) + TINY)])

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        left = graph.add("Concat", *(inputs[a] for a, _ in self.pairs), axis=1)
        right = graph.add("Concat", *(inputs[b] for _, b in self.pairs), axis=1)
        below = graph.add("Add", graph.add("Abs", right), graph.constant(np.full(1, TINY)))
        parts = [graph.add(op, left, right) for op in ("Mul", "Sub")]
        return graph.add("Concat", *parts, graph.add("Div", left, below), axis=1)


@dataclass(frozen=True)
class CategoryCodes:
    """The place of a category in a list; NaN for those that are not in it."""

    column: str
    known: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    def transform(self, table: RawTable) -> Array:
        places = {name: float(place) for place, name in enumerate(self.known)}
        return np.array([[places.get(value, np.nan)] for value in table.values(self.column)])

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        place = _places(graph, inputs[self.column], self.known, -1)
        known = graph.add("GreaterOrEqual", place, graph.constant(np.zeros(1, np.int64)))
        return graph.add("Where", known, graph.cast(place, np.float64), graph.constant(np.full(1, np.nan)))


@dataclass(frozen=True)
class CategoryMarks:
    """One column of 0 and 1 for each category of a list."""

    column: str
    known: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column} = {name}" for name in self.known)

    def transform(self, table: RawTable) -> Array:
        codes = CategoryCodes(self.column, self.known).transform(table)
        marks: Array = (codes == np.arange(len(self.known))).astype(np.float64)
        return marks

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        place = _places(graph, inputs[self.column], self.known, -1)
        return graph.cast(
            graph.add("Equal", place, graph.constant(np.arange(len(self.known), dtype=np.int64))), np.float64
        )


@dataclass(frozen=True)
class CategoryMeans:
    """The mean target of a category, drawn towards the mean of all where it is rare; and how common it is.

    Training rows get means of other rows (`view.py`), so that no row sees its own target.
    """

    column: str
    known: tuple[str, ...]
    means: Array  # (known and one for all others, outputs and the logarithm of the count)

    @property
    def names(self) -> tuple[str, ...]:
        outputs = self.means.shape[1] - 1
        means = (
            f"{self.column}: target {i}" if outputs > 1 else f"{self.column}: target" for i in range(outputs)
        )
        return (*means, f"{self.column}: count")

    def transform(self, table: RawTable) -> Array:
        places = {name: place for place, name in enumerate(self.known)}
        rows = [places.get(value, len(self.known)) for value in table.values(self.column)]
        found: Array = self.means[rows]
        return found

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        place = _places(graph, inputs[self.column], self.known, len(self.known))
        flat = graph.add("Squeeze", place, graph.constant(np.array([1])))
        return graph.add("Gather", graph.constant(self.means), flat, axis=0)


def _places(graph: OnnxGraph, text: str, known: tuple[str, ...], other: int) -> str:
    return graph.add(
        "LabelEncoder",
        text,
        domain="ai.onnx.ml",
        keys_strings=list(known),
        values_int64s=list(range(len(known))),
        default_int64=other,
    )


@dataclass(frozen=True)
class DateParts:
    """The parts of a date (UTC, Gregorian), and the days since the first date of the training rows."""

    column: str
    start_s: float

    @property
    def names(self) -> tuple[str, ...]:
        parts = ("year", "month", "day", "weekday", "hour", "days")
        return tuple(f"{self.column}: {part}" for part in parts)

    def transform(self, table: RawTable) -> Array:
        seconds = table.values(self.column)
        days = np.floor(seconds / DAY_S)
        hour = (seconds - days * DAY_S) / 3600.0
        elapsed = (seconds - self.start_s) / DAY_S
        weekday = _rest(days + 3.0, 7.0)  # 1970-01-01 was a Thursday; Monday is 0
        return np.column_stack([*_civil(days), weekday, hour, elapsed])

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        math = GraphMath(graph)
        seconds = inputs[self.column]
        days = math.floor(math.over(seconds, DAY_S))
        hour = math.over(math.minus(seconds, math.times(days, DAY_S)), 3600.0)
        elapsed = math.over(math.minus(seconds, self.start_s), DAY_S)
        shifted = math.plus(days, 3.0)
        weekday = math.minus(shifted, math.times(math.floor(math.over(shifted, 7.0)), 7.0))
        return graph.add("Concat", *math.civil(days), weekday, hour, elapsed, axis=1)


def _rest(value: Array, by: float) -> Array:
    rest: Array = value - np.floor(value / by) * by
    return rest


def _civil(days: Array) -> tuple[Array, Array, Array]:
    """Return year, month and day of days since 1970: years are counted from March, so that leap days come last."""
    shifted = days + 719468.0  # since 0000-03-01
    era = np.floor(shifted / 146097.0)  # of 400 years
    of_era = shifted - era * 146097.0
    leaps = np.floor(of_era / 1460.0) - np.floor(of_era / 36524.0) + np.floor(of_era / 146096.0)
    year = np.floor((of_era - leaps) / 365.0)
    of_year = of_era - (365.0 * year + np.floor(year / 4.0) - np.floor(year / 100.0))
    month = np.floor((5.0 * of_year + 2.0) / 153.0)  # 0 is March
    day = of_year - np.floor((153.0 * month + 2.0) / 5.0) + 1.0
    late = np.where(month >= 10.0, 1.0, 0.0) + 0.0 * month  # January and February; NaN stays NaN
    return year + era * 400.0 + late, month + 3.0 - 12.0 * late, day


class GraphMath:
    """Arithmetic on tensors of float64 of a graph; a second operand may be a number."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph

    def _op(self, op: str, left: str, right: str | float) -> str:
        other = right if isinstance(right, str) else self.graph.constant(np.full(1, right))
        return self.graph.add(op, left, other)

    def plus(self, left: str, right: str | float) -> str:
        return self._op("Add", left, right)

    def minus(self, left: str, right: str | float) -> str:
        return self._op("Sub", left, right)

    def times(self, left: str, right: str | float) -> str:
        return self._op("Mul", left, right)

    def over(self, left: str, right: str | float) -> str:
        return self._op("Div", left, right)

    def floor(self, value: str) -> str:
        return self.graph.add("Floor", value)

    def floored(self, value: str, by: float) -> str:
        return self.floor(self.over(value, by))

    def civil(self, days: str) -> tuple[str, str, str]:
        """Add the arithmetic of `_civil`."""
        shifted = self.plus(days, 719468.0)
        era = self.floored(shifted, 146097.0)
        of_era = self.minus(shifted, self.times(era, 146097.0))
        leaps = self.plus(
            self.minus(self.floored(of_era, 1460.0), self.floored(of_era, 36524.0)),
            self.floored(of_era, 146096.0),
        )
        year = self.floored(self.minus(of_era, leaps), 365.0)
        before = self.minus(
            self.plus(self.times(year, 365.0), self.floored(year, 4.0)), self.floored(year, 100.0)
        )
        of_year = self.minus(of_era, before)
        month = self.floored(self.plus(self.times(of_year, 5.0), 2.0), 153.0)
        first = self.floored(self.plus(self.times(month, 153.0), 2.0), 5.0)
        day = self.plus(self.minus(of_year, first), 1.0)
        above = self.graph.add("GreaterOrEqual", month, self.graph.constant(np.full(1, 10.0)))
        late = self.plus(self.graph.cast(above, np.float64), self.times(month, 0.0))
        whole_year = self.plus(self.plus(year, self.times(era, 400.0)), late)
        return whole_year, self.minus(self.plus(month, 3.0), self.times(late, 12.0)), day


@dataclass(frozen=True)
class ScaledBlocks:
    """Blocks side by side, each column centred and of spread 1; missing values become 0, the mean."""

    blocks: tuple[Any, ...]
    means: Array
    scales: Array
    limit: float = 8.0  # a value further from the mean counts as so many spreads

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    def transform(self, table: RawTable) -> Array:
        joined = np.hstack([block.transform(table) for block in self.blocks])
        scaled = np.clip((joined - self.means) / self.scales, -self.limit, self.limit)
        return np.where(np.isnan(scaled), 0.0, scaled)

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        joined = joined_onnx(graph, self.blocks, inputs)
        centred = graph.add("Sub", joined, graph.constant(self.means))
        scaled = graph.add("Div", centred, graph.constant(self.scales))
        zero = graph.constant(np.zeros(1))
        known = graph.add("Where", graph.add("IsNaN", scaled), zero, scaled)
        ends = graph.constant(np.array(-self.limit)), graph.constant(np.array(self.limit))
        return graph.add("Clip", known, *ends)


@dataclass(frozen=True)
class SteppedBlocks:
    """Steps along the columns of blocks: 0 below a step's start, 1 above its end, a line between; missing values are 0.

    A linear model of steps is a curve that bends at quantiles, and a network learns sharp bends from them sooner.
    """

    blocks: tuple[Any, ...]
    places: Array  # the column of each step
    starts: Array
    widths: Array

    @property
    def names(self) -> tuple[str, ...]:
        inner = [name for block in self.blocks for name in block.names]
        return tuple(
            f"{inner[place]} from {start:.4g}"
            for place, start in zip(self.places.tolist(), self.starts.tolist(), strict=True)
        )

    def transform(self, table: RawTable) -> Array:
        joined = np.hstack([block.transform(table) for block in self.blocks])[:, self.places]
        steps = np.clip((joined - self.starts) / self.widths, 0.0, 1.0)
        return np.where(np.isnan(steps), 0.0, steps)

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        joined = joined_onnx(graph, self.blocks, inputs)
        chosen = graph.add("Gather", joined, graph.constant(self.places.astype(np.int64)), axis=1)
        risen = graph.add("Sub", chosen, graph.constant(self.starts))
        steps = graph.add("Div", risen, graph.constant(self.widths))
        zero = graph.constant(np.array(0.0))
        known = graph.add("Where", graph.add("IsNaN", steps), zero, steps)
        return graph.add("Clip", known, zero, graph.constant(np.array(1.0)))


def joined_onnx(graph: OnnxGraph, blocks: tuple[Any, ...], inputs: dict[str, str]) -> str:
    """Return the tensor of blocks side by side."""
    parts = [block.onnx(graph, inputs) for block in blocks]
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)
