"""Steps of different shapes: what is known about each, and good guesses for those never seen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import ceil, log
from typing import Any

from weft.lms.plan.plan import Plan
from weft.lms.plan.recording import Recording, Site

MOST = 64  # plans kept
BUCKET = 1.125  # sizes within this factor share a guess, made for the largest of them
NEAR = 1.25  # one recording alone is stretched no further
FAR = 1.5  # and two no further beyond the larger one


@dataclass(frozen=True)
class Key:
    """What the first saved tensor tells: its kind is the same for all shapes of a model, its size is not."""

    kind: Hashable
    shape: tuple[int, ...]
    bytes: int


@dataclass
class Shape:
    """What is known about one kind of step."""

    recording: Recording
    plan: Plan
    bytes: int = 0  # of the tensor that names it
    kind: Hashable = None
    guessed: bool = False
    steps: int = 0
    margin: int = 0  # learned from peaks that were higher than planned
    reserve: int = 0  # bytes of the budget that its plan leaves to state
    closes: bool = False  # it is the last pass before an optimizer's step,
    last: Shape | None = None  # or this is, where that has a plan of its own
    shares: bool = True  # or it fits with nothing left to state alone
    link: float = 1.0  # of the link's rate is counted on: learned from copies that were waited for
    changes: int = 0  # of its plan, since steps were not as planned
    marks: tuple[Any, Any] | None = None  # the start and end of a step, to be compared with the plan
    waits: list[tuple[Any, Any]] = field(default_factory=list)  # for copies, within it
    highest: int = 0  # bytes that were in use when a step began
    slack: int = 0  # steps in a row that began with less in use than planned for


@dataclass
class Shapes:
    """The shapes of one budget."""

    known: OrderedDict[Hashable, Shape] = field(default_factory=OrderedDict)
    refused: set[Hashable] = field(default_factory=set)  # guesses that turned out wrong

    def find(self, key: Key) -> Shape | None:
        return self.known.get(key) or self.known.get(self.bucket(key))

    def add(self, key: Hashable, shape: Shape) -> None:
        self.known[key] = shape
        while len(self.known) > MOST:
            self.known.popitem(last=False)

    def forget(self, shape: Shape | None) -> None:
        """Its plan was wrong: the next such step is recorded."""
        for key, known in tuple(self.known.items()):
            if known is shape or (shape is not None and known.last is shape):
                del self.known[key]
                self.refused.add(key)

    def forget_all(self) -> None:
        """Other things are on the device than when these were recorded."""
        self.known.clear()
        self.refused.clear()

    def bucket(self, key: Key) -> tuple[Hashable, int]:
        return key.kind, ceil(log(max(1, key.bytes)) / log(BUCKET))

    def guess(self, key: Key) -> tuple[Recording, Plan, int] | None:
        """The step as it would be at the top of its bucket, and a plan to start from; None if too little is known."""
        bucket = self.bucket(key)
        if bucket in self.refused:
            return None
        size = int(BUCKET ** bucket[1])
        seen = [shape for shape in self.known.values() if shape.kind == key.kind and not shape.guessed]
        if not seen:
            return None
        nearest = min(seen, key=lambda shape: abs(log(shape.bytes / size)))
        alike = [shape for shape in seen if shape.bytes != nearest.bytes and same_steps(nearest, shape)]
        if alike:
            other = max(alike, key=lambda shape: abs(log(shape.bytes / nearest.bytes)))
            if size <= FAR * max(nearest.bytes, other.bytes):
                small, large = sorted((nearest, other), key=lambda shape: shape.bytes)
                return between(small, large, size), nearest.plan, size
        if 1 / NEAR <= size / nearest.bytes <= NEAR:
            return nearest.recording.scaled(size / nearest.bytes), nearest.plan, size
        return None


def same_steps(first: Shape, second: Shape) -> bool:
    """Whether two recordings differ in sizes and times alone."""
    one, two = first.recording, second.recording
    return one.events == two.events and [site.op for site in one.sites] == [site.op for site in two.sites]


def between(small: Shape, large: Shape, size: int) -> Recording:
    """Bytes on a line through two recordings; times on a power of the size, since attention grows faster than bytes."""
    part = (size - small.bytes) / (large.bytes - small.bytes)
    one, two = small.recording, large.recording
    base = max(one.base, two.base)
    one, two = one.shifted(base), two.shifted(base)
    growth = log(size / small.bytes) / log(large.bytes / small.bytes)

    def line(first: float, second: float) -> int:
        return max(0, int(first + (second - first) * part))

    def power(first: float, second: float) -> float:
        if first <= 0 or second <= 0:
            return max(0.0, first + (second - first) * part)
        return float(first * (second / first) ** growth)

    def site(first: Site, second: Site) -> Site:
        both = first.recipe_s is not None and second.recipe_s is not None and first.needs == second.needs
        cost = power(first.recipe_s or 0.0, second.recipe_s or 0.0) if both else None
        return replace(
            second,
            bytes=line(first.bytes, second.bytes),
            recipe_s=cost,
            recipe_bytes=line(first.recipe_bytes, second.recipe_bytes),
        )

    return Recording(
        sites=tuple(map(site, one.sites, two.sites)),
        seconds=tuple(map(power, one.seconds, two.seconds)),
        other=tuple(map(line, one.other, two.other)),
        rest=tuple(map(line, one.rest, two.rest)),
        labels=two.labels,
        base=base,
    )
