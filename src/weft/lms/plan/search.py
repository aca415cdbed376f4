"""Which sites to keep, rebuild or swap, so that the peak stays under a budget at the least cost. Pure.

Rebuilding has a price in seconds for each byte; swapping is free as long as the link to the host is idle anyway, and
dear after that. So plans form a family: rebuild the k cheapest sites, swap as many of the others as it takes, earliest
first, since those have the most time to leave and come back last. Members are played through; the fastest one that fits
is taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from weft.errors import BudgetError
from weft.lms.plan.plan import Plan
from weft.lms.plan.playback import Choice, Timeline, first_needs, play, play_within
from weft.lms.plan.recording import Rates, Recording
from weft.text import format_size, round_up_size

CLASS = 1.5  # prices within this factor of each other are tried together first
DEPTHS = (
    4,
    9,
)  # of recipes that need what other recipes make: about half a transformer's block, and a whole one
EASED = 6  # times a member that does not fit may have some of what it rebuilds swapped instead
LOOKS = 16  # at members between those that were looked at first, and
CLOSE = 1e-3  # of a step without a budget: not for less than that
WORSE = 0.01  # of a step without a budget: so much more than a plan that was good before is too much
NEAR = (16, 4, 1)  # so far from a plan that was good before others are tried


def make_plan(
    recording: Recording, limit: int, rates: Rates, host: int | None = None, like: Plan | None = None
) -> Plan:
    """The fastest plan whose peak is at most `limit` bytes; BudgetError where there is none.

    `like` is a plan for nearly the same step: it is looked for nearby first, which is quicker, and elsewhere only if
    nothing as good is there.
    """
    everything = 1 << 62 if host is None else host
    native = play(recording, ["keep"] * len(recording.sites), rates, 1 << 62)
    searches = [_Search(recording, limit, rates, everything, depth, native) for depth in DEPTHS]
    if native.peak <= limit:
        return searches[0].kept()
    best: _Member | None = None
    if like is not None and not like.keeps_all:
        again = searches[DEPTHS.index(like.depth)]
        again.tried[like.rebuilt] = like.choices.count("swap")
        again.climb(like.rebuilt)
        best = again.best
        if best is not None and best.timeline.seconds <= (like.slowdown + WORSE) * native.seconds:
            return best.plan(again)
    for search in searches:
        search.best = best
        search.look_everywhere()
        best = search.best
    if best is None:
        raise min((search.failure() for search in searches), key=lambda failure: failure[0])[1]
    return best.plan(searches[DEPTHS.index(best.depth)])


def least(recording: Recording, rates: Rates) -> Timeline:
    """The lowest peak of any plan we make, whatever it costs: what no budget can go below."""
    native = play(recording, ["keep"] * len(recording.sites), rates, 1 << 62)
    searches = [_Search(recording, 0, rates, 1 << 62, depth, native) for depth in DEPTHS]
    for search in searches:
        for part in range(3):
            rebuilt = search.rebuilt(len(search.cheapest) * part // 2)
            search.play(rebuilt, search.swappable(rebuilt))
    return min((search.least or native for search in searches), key=lambda timeline: timeline.peak)


def price(recording: Recording, index: int) -> float | None:
    """Seconds a byte to rebuild a site; None where it cannot be, or where it would free nothing."""
    site = recording.sites[index]
    if site.recipe_s is None or site.bytes == 0 or not site.uses:
        return None
    return site.recipe_s / site.bytes


@dataclass(frozen=True)
class _Member:
    """One plan of the family, played through."""

    count: int
    depth: int
    timeline: Timeline
    choices: tuple[Choice, ...]

    def plan(self, search: _Search) -> Plan:
        return Plan(
            limit=search.limit,
            recording=search.recording,
            choices=self.choices,
            timeline=self.timeline,
            native=search.native,
            keys=tuple(site.key for site in search.recording.sites),
            rebuilt=self.count,
            depth=self.depth,
        )


@dataclass(frozen=True)
class _Seen:
    """Seconds that a member takes at least besides the step's own."""

    rebuilding: float
    waiting: float
    fits: bool  # without being eased

    @property
    def seconds(self) -> float:
        return self.rebuilding + self.waiting


class _Search:
    """The family with recipes on recipes up to a depth."""

    def __init__(
        self, recording: Recording, limit: int, rates: Rates, host: int, depth: int, native: Timeline
    ) -> None:
        self.recording, self.limit, self.rates, self.host = recording, limit, rates, host
        self.depth, self.native = depth, native
        self.best: _Member | None = None
        self.least: Timeline | None = None  # the lowest peak seen
        self.tried: dict[int, int] = {}  # count: swaps
        self.seen: dict[int, _Seen] = {}  # by count

    @cached_property
    def cheapest(self) -> list[int]:
        """Sites that can be rebuilt; prices that differ by noise alone count as one, and the earliest comes first."""
        return sorted(self._classes, key=lambda index: (self._classes[index], index))

    @cached_property
    def _classes(self) -> dict[int, int]:
        prices = {index: price(self.recording, index) for index in range(len(self.recording.sites))}
        return {index: _class(cost) for index, cost in prices.items() if cost is not None}

    def kept(self) -> Plan:
        choices = tuple[Choice, ...](["keep"] * len(self.recording.sites))
        return _Member(0, self.depth, self.native, choices).plan(self)

    def look_everywhere(self) -> None:
        """The ends of each class of prices first, then wherever a better one may be between two that were seen."""
        classes = [self._classes[index] for index in self.cheapest]
        ends = [index for index in range(1, len(classes)) if classes[index] != classes[index - 1]]
        self.look([0, *ends, len(classes)])
        for _ in range(LOOKS):
            if self.best is None or self.best.depth != self.depth:
                return
            hope, middle = self._most_hopeful()
            if hope > self.best.timeline.seconds - CLOSE * self.native.seconds:
                return
            self.look([middle])

    def _most_hopeful(self) -> tuple[float, int]:
        """What a member between two that were seen takes at least, and which one is in the middle of them: it rebuilds
        no less than the first, and is unlikely to wait less than both, unless the second had to be eased.
        """
        hopes = [(float("inf"), 0)]
        for (low, first), (high, second) in pairwise(sorted(self.seen.items())):
            if high > low + 1:
                waiting = 0.0 if first.fits and not second.fits else min(first.waiting, second.waiting)
                hopes.append((self.native.seconds + first.rebuilding + waiting, (low + high) // 2))
        return min(hopes)

    def climb(self, start: int) -> None:
        """From a member to its neighbours, as long as one of them is better, and to nearer ones then."""
        self.look([start])
        for step in NEAR:
            centre = None
            while centre != start:
                centre = start
                self.look([centre - step, centre + step])
                start = centre if self.best is None else self.best.count

    def look(self, counts: Iterable[int]) -> None:
        unseen = (count for count in counts if count not in self.seen)
        new = {count: self.rebuilt(count) for count in unseen if 0 <= count <= len(self.cheapest)}
        self.seen |= {count: self._at_least(rebuilt) for count, rebuilt in new.items()}
        for count in sorted(new, key=lambda count: self.seen[count].seconds):
            least = self.native.seconds + self.seen[count].seconds
            if self.best is None or least < self.best.timeline.seconds:
                self._try(count, new[count])

    def _at_least(self, rebuilt: set[int]) -> _Seen:
        """What is there at the highest moment of the step and not rebuilt must have left over the link by then."""
        sites, native = self.recording.sites, self.native
        cost = sum(sites[index].recipe_s or 0.0 for index in rebuilt)
        moment = native.peak_interval
        gone = sum(sites[index].bytes for index in rebuilt if sites[index].pack < moment)
        leaving_s = (native.peak - self.limit - gone) / self.rates.out
        return _Seen(cost, max(0.0, leaving_s - native.times[moment] - cost), False)

    def _try(self, count: int, rebuilt: set[int]) -> None:
        others = self.swappable(rebuilt)
        nearest = min(self.tried, key=lambda known: abs(known - count), default=None)
        guess = len(others) if nearest is None else self.tried[nearest]
        found = self._fewest_swaps(rebuilt, others, guess)
        fits = found is not None
        found = found or self._eased(rebuilt)
        if found is None:
            return
        swaps, timeline, choices = found
        self.tried[count] = swaps
        self.seen[count] = _Seen(timeline.recipe_s, timeline.stall_s, fits)
        self._note(timeline)
        if timeline.host_peak <= self.host and (
            self.best is None or timeline.seconds < self.best.timeline.seconds
        ):
            self.best = _Member(count, self.depth, timeline, choices)

    def rebuilt(self, count: int) -> set[int]:
        """The cheapest, less those at the end of too long a chain: to rebuild one would be to rebuild all before it."""
        depths: dict[int, int] = {}
        for index in sorted(self.cheapest[:count]):
            depth = 1 + max((depths.get(need, 0) for need in self.recording.sites[index].needs), default=0)
            if depth <= self.depth:
                depths[index] = depth
        return set(depths)

    def swappable(self, rebuilt: set[int]) -> list[int]:
        """Of the others, those whose leaving frees anything."""
        return [
            index
            for index, site in enumerate(self.recording.sites)
            if index not in rebuilt and (not site.uses or site.held < site.uses[0])
        ]

    def _fewest_swaps(
        self, rebuilt: set[int], others: list[int], guess: int
    ) -> tuple[int, Timeline, tuple[Choice, ...]] | None:
        """The smallest number of swaps that fits, looked for around a guess in growing steps."""
        low, high, step = 0, len(others), 1
        middle = min(guess, high)
        found = None
        while low <= high:
            choices = self._choices(rebuilt, others[:middle])
            timeline = play_within(self.recording, choices, self.rates, self.limit)
            if timeline is not None:
                found = (middle, timeline, choices)
                high = middle - 1
                middle = max(low, middle - step) if step < (high - low) // 2 else (low + high) // 2
            else:
                low = middle + 1
                middle = min(high, middle + step) if step < (high - low) // 2 else (low + high) // 2
            step *= 2
        return found

    def _eased(self, rebuilt: set[int]) -> tuple[int, Timeline, tuple[Choice, ...]] | None:
        """Where rebuilding takes too much by itself at some moments, have what is rebuilt then swapped instead."""
        for _ in range(EASED):
            others = self.swappable(rebuilt)
            timeline, choices = self.play(rebuilt, others)
            if timeline.peak <= self.limit:
                return self._fewest_swaps(rebuilt, others, len(others))
            over = [moment for moment, level in enumerate(timeline.levels) if level > self.limit]
            needs = first_needs(self.recording, choices)
            then = {
                index for index in rebuilt if _meets(over, needs[index], self.recording.sites[index].last)
            }
            if not then:
                return None
            rebuilt = rebuilt - then
        return None

    def play(self, rebuilt: set[int], swapped: list[int]) -> tuple[Timeline, tuple[Choice, ...]]:
        choices = self._choices(rebuilt, swapped)
        timeline = play(self.recording, choices, self.rates, self.limit)
        self._note(timeline)
        return timeline, choices

    def _note(self, timeline: Timeline) -> None:
        if self.least is None or timeline.peak < self.least.peak:
            self.least = timeline

    def _choices(self, rebuilt: set[int], swapped: list[int]) -> tuple[Choice, ...]:
        choices: list[Choice] = ["keep"] * len(self.recording.sites)
        for index in rebuilt:
            choices[index] = "recipe"
        for index in swapped:
            choices[index] = "swap"
        return tuple(choices)

    def failure(self) -> tuple[int, BudgetError]:
        """The least bytes that were reached, and what to say about it."""
        least = self.least or self.native
        if least.peak <= self.limit:
            return 0, BudgetError(
                f"host must hold what is swapped, {format_size(least.host_peak)}, got {format_size(self.host)}; "
                f"write host='{round_up_size(least.host_peak)}' or a larger limit"
            )
        label = self.recording.label(least.peak_interval)
        other = self.recording.other[least.peak_interval]
        return least.peak, BudgetError(
            f"limit must hold the working set of {label}, {format_size(least.peak)} of which "
            f"{format_size(other)} are not saved tensors, got {format_size(self.limit)}; the smallest that works "
            f"is limit='{round_up_size(int(least.peak * 1.03))}'",
            short=least.peak - self.limit,
        )


def _meets(moments: list[int], first: int, last: int) -> bool:
    """Whether one of the moments is from the first event to the last, or just after it."""
    place = bisect_left(moments, first)
    return place < len(moments) and moments[place] <= last + 1


def _class(price: float) -> int:
    """Prices in classes a factor of CLASS wide; what is all but free is one class."""
    value, result = 1e-14, 0
    while value < price:
        value, result = value * CLASS, result + 1
    return result
