"""A recording: one training step as data. Which storages autograd saved, when they were used, what else took memory.

Events are the moments at which autograd saves a tensor or asks for one back, in the order in which they were issued.
Interval k is the work before event k; one more follows the last event. Memory is counted in the order of issue, which
is the order in which the device's allocator sees it, whatever the device's own clock says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

NEVER = 1 << 60


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The rates of a link, in bytes a second: `out` from the device to the host, and `back`."""

    out: float
    back: float

    def times(self, factor: float) -> Rates:
        return Rates(out=self.out * factor, back=self.back * factor)


@dataclass(frozen=True, kw_only=True)
class SavedSite:
    """One storage that autograd saved in a step: the unit of every decision."""

    op: str  # the operation that made the storage
    module: str  # the innermost module in whose forward pass it was saved
    bytes: int
    pack: int  # the event at which it was first saved
    uses: tuple[int, ...] = ()  # the events at which the backward pass asks for it
    held: int = 0  # until this event others keep it alive, whatever is decided
    gone: int = NEVER  # before this event autograd let it go
    recipe_s: float | None = (
        None  # seconds to rebuild it from the sites in `needs`; None if no recipe is known
    )
    recipe_bytes: int = 0  # that rebuilding takes on the way, besides the result
    needs: tuple[int, ...] = ()  # sites that the recipe works on, all of them saved before this one
    variant: int = 0  # the number of the recipe's variant that gave the right bits
    replayed: tuple[
        int, ...
    ] = ()  # numbers of the operations that the recipe repeats, which a tape must have seen

    @property
    def last(self) -> int:
        """The event after which nobody wants the storage: its last use, or a later use by the same node."""
        if not self.uses:
            return self.gone
        return max(self.uses[-1], self.gone - 1 if self.gone < NEVER else 0)

    @property
    def key(self) -> tuple[str, int]:
        """The operation and bytes by which a step that runs is compared with the recorded one."""
        return self.op, self.bytes


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One step: its sites, and for each interval the time and the memory besides sites."""

    sites: tuple[SavedSite, ...]
    seconds: tuple[float, ...]  # of compute in each interval
    other: tuple[int, ...]  # the most bytes that were not sites in each interval
    rest: tuple[int, ...] = ()  # bytes that were not sites when each interval began
    labels: tuple[str, ...] = ()  # what happened at each event, for messages
    base: int = 0  # bytes in use when the step began
    # Intervals in which the host waits for a number from the device, which comes behind all copies out before it.
    waits: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.seconds) == len(self.other)
        assert len(self.rest) in (0, len(self.other))
        for index, site in enumerate(self.sites):
            assert all(need < index for need in site.needs)

    @property
    def events(self) -> int:
        return len(self.seconds) - 1

    @cached_property
    def packs(self) -> tuple[tuple[int, ...], ...]:
        """For each event, the sites that are saved at it."""
        return self._by_event(site.pack for site in self.sites)

    @cached_property
    def ends(self) -> tuple[tuple[int, ...], ...]:
        """For each interval, the sites that nobody wants after it."""
        return self._by_event(site.last + 1 for site in self.sites)

    def _by_event(self, events: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.seconds]
        for index, event in enumerate(events):
            if event < len(found):
                found[event].append(index)
        return tuple(map(tuple, found))

    def label(self, interval: int) -> str:
        """Return the operation that runs in an interval, as far as it is known."""
        if not self.labels:
            return "an operation"
        return self.labels[min(interval, len(self.labels) - 1)]

    def scaled(self, ratio: float) -> Recording:
        """Return the same step with `ratio` times as much data: a first guess for a new shape."""

        def grown(site: SavedSite) -> SavedSite:
            cost = None if site.recipe_s is None else site.recipe_s * ratio
            size, taken = int(site.bytes * ratio), int(site.recipe_bytes * ratio)
            return replace(site, bytes=size, recipe_s=cost, recipe_bytes=taken)

        # Of the other bytes some grow with the data and some do not: from one recording alone, expect the larger.
        least = min(self.other, default=0)

        def worse(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(max(value, least + int((value - least) * ratio)) for value in values)

        return replace(
            self,
            sites=tuple(map(grown, self.sites)),
            seconds=tuple(value * ratio for value in self.seconds),
            other=worse(self.other),
            rest=worse(self.rest),
        )

    def measured_again(self, later: Recording, least: bool = False) -> Recording:
        """Return this recording with the times of a later one, and with its bytes where memory was measured.

        With `least`, each interval has the shorter of both times: a device that waited for its launching thread looks
        as if it had worked.
        """
        if len(later.sites) != len(self.sites) or later.events != self.events:
            return self
        if least:
            return replace(self, seconds=tuple(map(min, self.seconds, later.seconds)))
        if not any(later.other):
            return replace(self, seconds=later.seconds)
        sites = tuple(
            replace(old, held=max(old.held, new.held))
            for old, new in zip(self.sites, later.sites, strict=True)
        )
        return replace(
            self, sites=sites, seconds=later.seconds, other=later.other, rest=later.rest, base=later.base
        )

    def timed_by(self, intervals: Sequence[tuple[int, float]]) -> Recording:
        """Return the same step with the times of one that took the same way with other sizes.

        Of each interval of that step, `intervals` has the event of this one after which it began, and its seconds. An
        event may be missing or come twice; the time between two that were seen is spread over the intervals between
        them as it was before.
        """
        seconds, reached, waiting = list(self.seconds), -1, 0.0
        ends = [*(place for place, _ in intervals[1:]), self.events]
        for (_, took), end in zip(intervals, ends, strict=True):
            waiting += took
            end = min(end, self.events)
            if end <= reached:
                continue
            before = seconds[reached + 1 : end + 1]
            whole = sum(before)
            for place, old in enumerate(before, reached + 1):
                seconds[place] = waiting * (old / whole if whole > 0 else 1 / len(before))
            reached, waiting = end, 0.0
        return replace(self, seconds=tuple(seconds))

    def without_replays(self) -> Recording:
        """Return the same step with no way to rebuild what operations of the tape must be repeated for."""
        if not any(site.replayed for site in self.sites):
            return self
        bare = tuple(
            replace(site, recipe_s=None, needs=(), replayed=()) if site.replayed else site
            for site in self.sites
        )
        return replace(self, sites=bare)

    def sped_up(self, factor: float) -> Recording:
        """Return the same step with all times scaled down: measuring an interval takes time, too."""
        return replace(self, seconds=tuple(value * factor for value in self.seconds))

    def shifted(self, base: int) -> Recording:
        """Return the same step with `base` bytes in use when it began."""
        shift = base - self.base
        other, rest = (tuple(max(0, value + shift) for value in values) for values in (self.other, self.rest))
        return replace(self, other=other, rest=rest, base=base)
