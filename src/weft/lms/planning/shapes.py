"""Shapes of steps: the recording and plan of each shape that was seen, and guesses for shapes that were not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import ceil, log
from typing import Any

from weft.errors import BudgetError
from weft.lms.planning.blocks import ModuleSpan
from weft.lms.planning.plan import Plan
from weft.lms.planning.recording import Recording, SavedSite
from weft.lms.planning.search import PlanSoFar
from weft.lms.tuning import DEFAULTS, LmsTuning


@dataclass(frozen=True)
class ShapeKey:
    """The key of a shape, from the first saved tensor: all shapes of a model have its kind, but not its size."""

    kind: Hashable
    shape: tuple[int, ...]
    bytes: int


@dataclass
class StepShape:
    """Steps that save the same tensors: their recording, their plan, and what was learned while it was followed."""

    recording: Recording
    plan: Plan
    bytes: int = 0  # of the first saved tensor
    kind: Hashable = None  # of the first saved tensor
    guessed: bool = False  # from recordings of other shapes,
    origin: StepShape | None = None  # of which this one was the nearest
    steps: int = 0  # since the plan was measured anew
    margin: int = 0  # bytes, learned from peaks that were higher than planned
    reserve: int = 0  # bytes of the budget that the plan leaves to optimizer state
    is_last_pass: bool = False  # these are last passes before an optimizer's step
    last_pass: StepShape | None = None  # the shape of last passes, where these have a plan of their own
    shares: bool = True  # False if it fits only with nothing left to state
    link: float = 1.0  # share of the link's rate that is counted on, learned from copies that came late
    launching: float = (
        0.0  # share of the launching that plans add for which the device waits, learned likewise
    )
    before: tuple[float, Plan] | None = (
        None  # the plan before launching was counted, and its measured seconds
    )
    changes: int = 0  # of the plan, because steps differed from it
    marks: tuple[Any, Any] | None = None  # the start and end of a step, to be compared with the plan
    launched_s: float = 0.0  # that the host took to launch that step
    waits: list[tuple[Any, Any]] = field(
        default_factory=list
    )  # marks around each wait for a copy in that step
    varies: bool = False  # sizes follow the data: tensors find their places by the operations that made them
    largest_surplus: int = 0  # bytes by which a tensor was larger than the recorded one, in such steps
    watched: int = 0  # steps of this plan that are still watched
    highest_base: int = 0  # the most bytes that were in use when a step began
    slack_steps: int = 0  # steps in a row that began with much less in use than planned for
    fastest_s: float = float("inf")  # measured seconds of a step that followed this plan
    search: PlanSoFar | None = None  # for a better plan, which is not over
    # Modules that are called again in the backward pass.
    spans: tuple[ModuleSpan, ...] = ()  # the modules that ran in the recorded step
    called: frozenset[int] = frozenset()  # numbers of those that steps of this shape call again
    wanted: frozenset[int] = frozenset()  # of those that should be, once they were tried
    may_call: bool = False  # they were tried, and may be
    weighed: bool = False  # it is decided whether any are wanted, or whether it is faster that way
    plain: StepShape | None = None  # the same steps without that, to go back to
    without: BudgetError | None = None  # why no plan fits without that

    @property
    def is_on_trial(self) -> bool:
        """Whether it is still to be seen if steps that call modules again are faster than those that do not."""
        return self.plain is not None and not self.weighed


@dataclass
class StepShapes:
    """The shapes that were seen under one budget, the oldest first."""

    tuning: LmsTuning = DEFAULTS
    known: OrderedDict[Hashable, StepShape] = field(default_factory=OrderedDict)
    refused: set[Hashable] = field(default_factory=set)  # keys of guesses that turned out wrong

    @property
    def called(self) -> frozenset[int]:
        """The numbers of all modules that steps of some shape call again, or are to."""
        return frozenset().union(*(shape.called | shape.wanted for shape in self.known.values()))

    def find(self, key: ShapeKey) -> StepShape | None:
        return self.known.get(key) or self.known.get(self.bucket(key))

    def add(self, key: Hashable, shape: StepShape) -> None:
        self.known[key] = shape
        while len(self.known) > self.tuning.max_shapes:
            self.known.popitem(last=False)

    def forget(self, shape: StepShape | None) -> None:
        """Forget a shape whose plan was wrong, so that the next such step is recorded; one that calls modules again
        becomes the one that does not.
        """
        for key, known in tuple(self.known.items()):
            if known is shape and known.plain is not None and known.plain.without is None:
                self.known[key] = known.plain
            elif known is shape or (shape is not None and known.last_pass is shape):
                del self.known[key]
                self.refused.add(key)

    def replace_guesses(self, shape: StepShape) -> None:
        """Drop a guess, its origin and all other guesses of the kind: the next ones are made from another recording."""
        if shape.origin is None:
            return
        for key, known in tuple(self.known.items()):
            if known is shape.origin or (known.guessed and known.kind == shape.kind):
                del self.known[key]

    def forget_all(self) -> None:
        """Forget all shapes, since other things are on the device than when they were recorded."""
        self.known.clear()
        self.refused.clear()

    def bucket(self, key: ShapeKey) -> tuple[Hashable, int]:
        """Return the kind and the number of the bucket of sizes that share a guess."""
        return key.kind, ceil(log(max(1, key.bytes)) / log(self.tuning.shape_bucket))

    def guess(self, key: ShapeKey) -> tuple[Recording, StepShape, int] | None:
        """Return a step of the largest size in the key's bucket, a shape whose plan to start from, and that size.

        None if too little is known.
        """
        bucket = self.bucket(key)
        if bucket in self.refused:
            return None
        size = int(self.tuning.shape_bucket ** bucket[1])
        seen = [shape for shape in self.known.values() if shape.kind == key.kind and not shape.guessed]
        seen = [shape for shape in seen if shape.called] or seen
        if not seen:
            return None
        nearest = min(seen, key=lambda shape: abs(log(shape.bytes / size)))
        alike = [shape for shape in seen if shape.bytes != nearest.bytes and same_steps(nearest, shape)]
        if alike:
            other = max(alike, key=lambda shape: abs(log(shape.bytes / nearest.bytes)))
            if size <= self.tuning.two_shapes_reach * max(nearest.bytes, other.bytes):
                small, large = sorted((nearest, other), key=lambda shape: shape.bytes)
                return between(small, large, size), nearest, size
        reach = self.tuning.one_shape_reach
        if 1 / reach <= size / nearest.bytes <= reach:
            return nearest.recording.scaled(size / nearest.bytes), nearest, size
        return None


def same_steps(first: StepShape, second: StepShape) -> bool:
    """Return whether two recordings differ in sizes and times alone."""
    one, two = first.recording, second.recording
    if first.called != second.called:
        return False
    return one.events == two.events and [site.op for site in one.sites] == [site.op for site in two.sites]


def between(small: StepShape, large: StepShape, size: int) -> Recording:
    """Return a recording for a size, from two others: bytes lie on a line through both, times on a power of the size,
    since the time of attention grows faster than its bytes.
    """
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

    def site(first: SavedSite, second: SavedSite) -> SavedSite:
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
        waits=two.waits,
    )
