"""Domains of one parameter: ranges, logarithmic ranges, whole numbers, choices and ordered choices.

A domain has a text form, `log:1e-5:1e-1`, which files and the command line use; see `text.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from weft.errors import UsageError
from weft.text import shorten

Value = str | int | float | bool | None
MOST_CHOICES = 10_000
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the text of an object, another in each process
D = TypeVar("D", bound="Domain")


class SpaceError(UsageError, ValueError):
    """A search space, or a point of one, that cannot be used."""


@dataclass(frozen=True)
class Domain:
    """The values that one parameter may have; `when` is the condition under which it exists."""

    when: str | None = None

    def contains(self, value: Any) -> bool:
        """Return whether a value is one of the domain's."""
        raise NotImplementedError

    def grid(self, points: int) -> list[Value]:
        """Return values that cover the domain: all where they can be counted, else `points` of them."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the text form, without the condition."""
        raise NotImplementedError

    def data(self) -> Any:
        """Return the domain as JSON holds it, with its condition."""
        return self.text() if self.when is None else f"{self.text()} if {self.when}"

    def with_condition(self: D, when: str | None) -> D:
        return replace(self, when=when)

    @property
    def fixed(self) -> bool:
        """Whether there is only one value."""
        return False


def plain_value(value: Any) -> Any:
    """Return a value as spaces and journals hold it: numbers of other libraries as Python's own, lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(map(plain_value, value))
    if isinstance(value, (str, int, float, type(None))) and type(value).__module__ == "builtins":
        return value
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a point as spaces hold them."""
    return {name: plain_value(value) for name, value in params.items()}


def scalar_text(value: Any) -> str:
    """Return a value as flags have it, lists with commas between: `64,64`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join(map(scalar_text, value))
    return "" if value is None else str(value)


def scalar_params(params: Mapping[str, Any]) -> dict[str, str | int | float | bool | None]:
    """Return the values of a point for tables and pages, which show lists by their text."""
    return {name: scalar_text(value) if isinstance(value, tuple) else value for name, value in params.items()}


def _storable(value: Any) -> bool:
    """Return whether JSON can hold a choice: text, a number, true, false, null, or several of these."""
    if isinstance(value, tuple):
        return all(map(_storable, value))
    return isinstance(value, (str, int, float, bool, type(None)))


def labels_of(values: Iterable[Any]) -> list[Any]:
    """Return choices as a study keeps them: what JSON cannot hold by a label of its own, as `StandardScaler`."""
    found: list[Any] = []
    for value in map(plain_value, values):
        if not _storable(value):
            named = getattr(value, "__qualname__", None) or _ADDRESS.sub("", repr(value))
            same = sum(one == named or str(one).startswith(f"{named} (") for one in found)
            value = f"{named} ({same + 1})" if same else named
        found.append(value)
    return found


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class FloatRange(Domain):
    """Numbers from `low` to `high`, both included; `step` makes them a grid."""

    low: float = 0.0
    high: float = 1.0
    step: float | None = None

    def __post_init__(self) -> None:
        if not (_number(self.low) and _number(self.high) and self.low < self.high):
            raise SpaceError(
                f"a range must have LOW < HIGH, both finite, got {self.low}:{self.high}; write float:0:1"
            )
        if self.step is not None and not (_number(self.step) and 0 < self.step <= self.high - self.low):
            raise SpaceError(
                f"the step of a range must be above 0 and within it, got {self.step}; write float:0:1:0.1"
            )

    def contains(self, value: Any) -> bool:
        return _number(value) and self.low <= value <= self.high

    def grid(self, points: int) -> list[Value]:
        if self.step is not None:
            count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
            return [min(self.high, self.low + i * self.step) for i in range(count)]
        share = (self.high - self.low) / max(1, points - 1)
        return [min(self.high, self.low + share * i) for i in range(points)]

    def text(self) -> str:
        return f"float:{self.low!r}:{self.high!r}" + (f":{self.step!r}" if self.step is not None else "")


@dataclass(frozen=True)
class LogRange(Domain):
    """Numbers from `low` to `high`, searched by their logarithm."""

    low: float = 1e-5
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (_number(self.low) and _number(self.high) and 0 < self.low < self.high):
            raise SpaceError(
                f"a logarithmic range must have 0 < LOW < HIGH, got {self.low}:{self.high}; write log:1e-5:1e-1"
            )

    def contains(self, value: Any) -> bool:
        return _number(value) and self.low <= value <= self.high

    def grid(self, points: int) -> list[Value]:
        ratio = self.high / self.low
        inner: list[Value] = [
            min(self.high, self.low * ratio ** (i / max(1, points - 1))) for i in range(points)
        ]
        return [self.low, *inner[1:-1], self.high] if points > 1 else inner

    def text(self) -> str:
        return f"log:{self.low!r}:{self.high!r}"


@dataclass(frozen=True)
class IntRange(Domain):
    """Whole numbers from `low` to `high`, both included, in steps, or searched by their logarithm."""

    low: int = 0
    high: int = 1
    step: int = 1
    log: bool = False

    def __post_init__(self) -> None:
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (self.low, self.high, self.step))
        if not whole or not (self.low < self.high and self.step >= 1):
            raise SpaceError(
                f"a range of whole numbers must have LOW < HIGH and a step of at least 1, got "
                f"{self.low}:{self.high}:{self.step}; write int:16:512"
            )
        if self.log and (self.low < 1 or self.step != 1):
            raise SpaceError(
                f"a logarithmic range must begin at 1 or above and have no step, got {self.low}:{self.high}; "
                "write int:1:512:log"
            )

    def contains(self, value: Any) -> bool:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= value <= self.high and (value - self.low) % self.step == 0

    def grid(self, points: int) -> list[Value]:
        if not self.log and (self.high - self.low) // self.step < MOST_CHOICES:
            return list(range(self.low, self.high + 1, self.step))
        inner = (
            LogRange(low=self.low, high=self.high) if self.log else FloatRange(low=self.low, high=self.high)
        )
        return list(dict.fromkeys(round(float(v or 0)) for v in inner.grid(points)))

    def text(self) -> str:
        last = ":log" if self.log else f":{self.step}" if self.step != 1 else ""
        return f"int:{self.low}:{self.high}{last}"


@dataclass(frozen=True)
class Choices(Domain):
    """Values without an order: text, numbers, true and false, or several of these, as the sizes of layers are."""

    values: tuple[Any, ...] = ()  # text, numbers, true, false, null, and tuples of these

    def __post_init__(self) -> None:
        if not 1 <= len(self.values) <= MOST_CHOICES:
            raise SpaceError(
                f"choices must have 1 to {MOST_CHOICES} values, got {len(self.values)}; write adam,sgd"
            )
        object.__setattr__(self, "values", plain_value(self.values))
        for value in self.values:
            if not _storable(value):
                raise SpaceError(
                    f"a choice must be text, a number, true, false, null or a list of these, got {shorten(value)}; "
                    "name it by text"
                )
        if len({(type(value), value) for value in self.values}) != len(self.values):
            raise SpaceError(f"choices must differ, got {shorten(list(self.values))}; remove one")

    def contains(self, value: Any) -> bool:
        return any(type(value) is type(one) and value == one for one in self.values)

    def meant(self, value: Any) -> Any:
        """Return the list among the choices that a text stands for, as pages and flags have it; else the value."""
        if isinstance(value, (str, int, float)) and not self.contains(value):
            text = scalar_text(value)
            return next(
                (one for one in self.values if isinstance(one, tuple) and scalar_text(one) == text), value
            )
        return value

    def grid(self, points: int) -> list[Value]:
        return list(self.values)

    def text(self) -> str:
        return ",".join(_written(value) for value in self.values)

    def data(self) -> Any:
        found: dict[str, Any] = {"choices": list(map(_listed, self.values))}
        return found if self.when is None else {**found, "if": self.when}

    @property
    def fixed(self) -> bool:
        return len(self.values) == 1


@dataclass(frozen=True)
class OrderedChoices(Choices):
    """Values in an order: neighbours are alike, so that 64 is nearer to 32 than 512 is."""

    def text(self) -> str:
        return "ordered:" + super().text()

    def data(self) -> Any:
        found: dict[str, Any] = {"ordered": list(map(_listed, self.values))}
        return found if self.when is None else {**found, "if": self.when}


def _listed(value: Any) -> Any:
    return list(map(_listed, value)) if isinstance(value, tuple) else value


def _written(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}[value]
        if isinstance(value, (bool, type(None)))
        else "[" + " ".join(map(_written, value)) + "]"
        if isinstance(value, tuple)
        else str(value)
    )


def check_kind(name: str, known: Domain, domain: Domain) -> None:
    """Refuse a domain of another kind than one of the same name: ranges may change, kinds of values may not."""
    kinds = [FloatRange if isinstance(one, LogRange) else type(one) for one in (known, domain)]
    if kinds[0] is kinds[1] or known.fixed or domain.fixed:
        return
    raise SpaceError(
        f"{name} must have one kind of values, got {domain.text()} after {known.text()}; give it another name"
    )


# -- short names for Python --------------------------------------------------------------------------------


def uniform(low: float, high: float, step: float | None = None, *, when: str | None = None) -> FloatRange:
    """Return the domain of numbers from `low` to `high`."""
    return FloatRange(when, low, high, step)


def log(low: float, high: float, *, when: str | None = None) -> LogRange:
    """Return the domain of numbers from `low` to `high`, searched by their logarithm."""
    return LogRange(when, low, high)


def integer(low: int, high: int, step: int = 1, *, log: bool = False, when: str | None = None) -> IntRange:
    """Return the domain of whole numbers from `low` to `high`."""
    return IntRange(when, low, high, step, log)


def choice(values: Any, *, when: str | None = None) -> Choices:
    """Return the domain of some values without an order."""
    return Choices(when, tuple(values))


def ordered(values: Any, *, when: str | None = None) -> OrderedChoices:
    """Return the domain of some values in their order."""
    return OrderedChoices(when, tuple(values))
