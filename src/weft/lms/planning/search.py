"""The search for a plan: which sites to keep, rebuild or swap so that the peak stays under a budget. Pure.

Rebuilding has a price in seconds for each byte; swapping is free as long as the link to the host is idle anyway, and
dear after that. So the candidates form a family: rebuild the k cheapest sites, and swap as many of the others as it
takes, earliest first, since those have the most time to leave and come back last. Candidates are played through
(`playback.py`), and the fastest one that fits is the plan.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise

from weft.errors import BudgetError
from weft.lms.planning.launching import LaunchCost
from weft.lms.planning.plan import Plan, PlanFamily
from weft.lms.planning.playback import Choice, Timeline, first_needs, play, play_within
from weft.lms.planning.recording import Rates, Recording
from weft.lms.planning.segments import anchors, fitting_anchors
from weft.lms.tuning import DEFAULTS, LmsTuning
from weft.text import format_size, round_up_size

UNLIMITED = 1 << 62  # bytes
NO_LAUNCHING = LaunchCost()


def make_plan(
    recording: Recording,
    limit: int,
    rates: Rates,
    host: int | None = None,
    like: Plan | None = None,
    tuning: LmsTuning = DEFAULTS,
    launching: LaunchCost = NO_LAUNCHING,
) -> Plan:
    """Return the fastest plan whose peak is at most `limit` bytes; BudgetError where there is none."""
    *_, plan = plans(recording, limit, rates, host, like, tuning, launching)
    return plan


def plans(
    recording: Recording,
    limit: int,
    rates: Rates,
    host: int | None = None,
    like: Plan | None = None,
    tuning: LmsTuning = DEFAULTS,
    launching: LaunchCost = NO_LAUNCHING,
    thorough: bool = False,
) -> Iterator[Plan]:
    """Yield the fastest plan so far whose peak is at most `limit` bytes, again and again, from the first one found
    until no better one is looked for; BudgetError where there is none.

    `launching` is what the device waits for besides its own work, as far as steps have told that. `like` is a plan for
    nearly the same step: the search begins near it, which is quicker, and goes elsewhere only if nothing as good is
    there, or if it is `thorough`.
    """
    host_bytes = UNLIMITED if host is None else host
    native = play(recording, ["keep"] * len(recording.sites), rates, UNLIMITED, tuning)
    begin = partial(_PlanSearch, recording, limit, rates, host_bytes, native=native, tuning=tuning)
    begin = partial(begin, launching=launching)
    if native.peak <= limit:
        yield begin(PlanFamily()).kept()
        return
    best: _Candidate | None = None
    if like is not None and not like.keeps_all:
        again = begin(like.family)
        again.tried[like.rebuilt] = like.choices.count("swap")
        for _ in again.climb(like.rebuilt):
            best = again.best
            if best is not None:
                yield best.plan(again)
        as_good = (like.slowdown + tuning.search_tolerance) * native.seconds
        if best is not None and best.timeline.seconds <= as_good and not thorough:
            return
    made: dict[PlanFamily, _PlanSearch] = {}
    kinds = _kinds(recording)
    for family in _fitting(
        kinds[0][0], limit, kinds[0][1], tuning
    ):  # what checkpointing does, before all else
        search = made[family] = begin(family)
        search.bound = float("inf") if best is None else best.timeline.seconds
        search.look([len(search.cheapest)])
        best = _best_of([search], best)
        if best is not None:
            yield best.plan(begin(best.family))
    fitting = {kinds[0][1]: list(made)}
    segmented = (
        [*(fitting.get(replays) or _fitting(step, limit, replays, tuning)), *_sized(step, replays, tuning)]
        for step, replays in kinds
    )
    chains: Iterable[list[PlanFamily]] = [_chains(tuning)]
    # Short chains are enough where much fits, and quickly looked at.
    loose = limit > tuning.loose_limit * native.peak
    for families in chain(chains, segmented) if loose else chain(segmented, chains):
        group = [made[family] if family in made else begin(family) for family in dict.fromkeys(families)]
        made |= {search.family: search for search in group}
        for better in _improved(group, best, tuning):
            if better is not None:
                yield better.plan(begin(better.family))
        best = _best_of(group, best)
    if best is None:
        raise min((search.failure() for search in made.values()), key=lambda failure: failure[0])[1]
    yield best.plan(begin(best.family))


def kept(recording: Recording, limit: int, tuning: LmsTuning = DEFAULTS) -> Plan:
    """Return the plan that keeps everything, whatever that takes."""
    rates = Rates(out=1.0, back=1.0)  # nothing is copied
    native = play(recording, ["keep"] * len(recording.sites), rates, UNLIMITED, tuning)
    return _PlanSearch(recording, limit, rates, UNLIMITED, PlanFamily(), native, tuning).kept()


class PlanSoFar:
    """A search for a plan that is not over: the best one so far, which is found first of all."""

    def __init__(self, search: Iterator[Plan], exact: bool) -> None:
        self._search, self._exact = search, exact  # `exact` if steps save the bytes that the recorded one did
        self.is_over = False

    @property
    def left(self) -> PlanSoFar | None:
        """What of the search is left; None if nothing, or where sizes differ from those it goes by."""
        return None if self.is_over or not self._exact else self

    def look(self, seconds: float) -> None:
        """Look for a better plan for some seconds, or until there is one at all; BudgetError if there is none."""
        began = time.perf_counter()
        for plan in self._search:
            keys = plan.keys if self._exact else tuple((op, -1) for op, _ in plan.keys)
            self.plan = replace(plan, keys=keys)
            if time.perf_counter() - began > seconds:
                return
        self.is_over = True


def _improved(
    searches: list[_PlanSearch], best: _Candidate | None, tuning: LmsTuning
) -> Iterator[_Candidate | None]:
    """Look for the fastest candidate of families that are alike, and yield it, or the best one before if that is as
    good, after each part of the work.

    A plan that needs the tape must be faster by as much as taping is worth.
    """
    if best is not None:
        for search in searches:
            gain = tuning.replay_gain * search.native.seconds
            search.bound = best.timeline.seconds + gain * (best.family.replays - search.family.replays)
    for search in searches:
        search.look([len(search.cheapest)])  # all of every segment: what checkpointing does
        yield _best_of(searches, best)
    for search in sorted(searches, key=lambda search: search.hope)[: tuning.segmentings_searched]:
        for _ in search.look_everywhere():
            yield _best_of(searches, best)


def _best_of(searches: list[_PlanSearch], best: _Candidate | None) -> _Candidate | None:
    found = min(searches, key=lambda search: search.seconds)
    return found.best if found.seconds < found.bound else best


def _chains(tuning: LmsTuning) -> list[PlanFamily]:
    """Return the families of candidates that rebuild along short chains, with nothing repeated from the tape."""
    return [PlanFamily(depth=depth, replays=False) for depth in tuning.recipe_depths]


def _kinds(recording: Recording) -> list[tuple[Recording, bool]]:
    """Return the step as it can be rebuilt with operations of the tape repeated, if any can be, and with none, whose
    segments are others; and whether operations are repeated.
    """
    plain = recording.without_replays()
    return [(plain, False)] if plain is recording else [(recording, True), (plain, False)]


def _fitting(recording: Recording, limit: int, replays: bool, tuning: LmsTuning) -> Iterator[PlanFamily]:
    """Yield the families of candidates that rebuild whole segments which are as large as fits under a limit."""
    for share in tuning.fitting_shares:
        stay = fitting_anchors(recording, int(share * limit))
        if stay is not None:
            yield PlanFamily(anchors=stay, replays=replays)


def _sized(recording: Recording, replays: bool, tuning: LmsTuning) -> Iterator[PlanFamily]:
    """Yield the families of candidates that rebuild whole segments, of several sizes."""
    whole = sum(site.bytes for site in recording.sites if site.recipe_s is not None)
    for parts in tuning.segment_parts:
        size = int(tuning.segment_slack * whole / parts)
        yield PlanFamily(anchors=anchors(recording, size), replays=replays)


def least(recording: Recording, rates: Rates, tuning: LmsTuning = DEFAULTS) -> Timeline:
    """Return the timeline of the plan with the lowest peak, at any cost: no budget can go below that peak."""
    native = play(recording, ["keep"] * len(recording.sites), rates, UNLIMITED, tuning)
    segmented = chain.from_iterable(_sized(step, replays, tuning) for step, replays in _kinds(recording))
    searches = [
        _PlanSearch(recording, 0, rates, UNLIMITED, family, native, tuning)
        for family in dict.fromkeys((*_chains(tuning), *segmented))
    ]
    for search in searches:
        for part in range(3):
            rebuilt = search.rebuilt(len(search.cheapest) * part // 2)
            search.play(rebuilt, search.swappable(rebuilt))
    return min((search.least or native for search in searches), key=lambda timeline: timeline.peak)


def price(recording: Recording, index: int, launching: LaunchCost = NO_LAUNCHING) -> float | None:
    """Return the price of rebuilding a site, in seconds a byte; None where it cannot be, or would free nothing."""
    site = recording.sites[index]
    if site.recipe_s is None or site.bytes == 0 or not site.uses:
        return None
    return (site.recipe_s + launching.of_one) / site.bytes


@dataclass(frozen=True)
class _Candidate:
    """One choice for every site, played through."""

    count: int  # of cheapest sites that are rebuilt
    family: PlanFamily
    timeline: Timeline
    choices: tuple[Choice, ...]

    def plan(self, search: _PlanSearch) -> Plan:
        return Plan(
            limit=search.limit,
            recording=search.recording,
            choices=self.choices,
            timeline=self.timeline,
            native=search.native,
            keys=tuple(site.key for site in search.recording.sites),
            rebuilt=self.count,
            family=self.family,
        )


@dataclass(frozen=True)
class _LeastCost:
    """The seconds that a candidate takes at least, besides those of the step with everything kept."""

    rebuilding: float
    waiting: float
    fits: bool  # without swapping some of the sites that it would rebuild

    @property
    def seconds(self) -> float:
        return self.rebuilding + self.waiting


class _PlanSearch:
    """The search among the candidates of a family."""

    def __init__(
        self,
        recording: Recording,
        limit: int,
        rates: Rates,
        host: int,
        family: PlanFamily,
        native: Timeline,
        tuning: LmsTuning = DEFAULTS,
        launching: LaunchCost = NO_LAUNCHING,
    ) -> None:
        self.tuning, self.launching = tuning, launching
        self.recording, self.limit, self.rates, self.host = recording, limit, rates, host
        self.family, self.native = family, native
        self.best: _Candidate | None = None
        self.bound = float("inf")  # seconds of what was found elsewhere: slower candidates are not played
        self.least: Timeline | None = None  # the one with the lowest peak seen
        self.tried: dict[int, int] = {}  # swaps that a candidate needs, by its count
        self.seen: dict[int, _LeastCost] = {}  # by count

    @property
    def seconds(self) -> float:
        """The seconds of the best candidate; infinite if there is none."""
        return float("inf") if self.best is None else self.best.timeline.seconds

    @property
    def hope(self) -> tuple[float, float]:
        """The seconds of the best candidate, and the least that one which was not played can take."""
        return self.seconds, min((cost.seconds for cost in self.seen.values()), default=0.0)

    @property
    def _to_beat(self) -> float:
        return min(self.bound, self.seconds)

    @cached_property
    def cheapest(self) -> list[int]:
        """Sites that can be rebuilt, the cheapest first; where prices differ by noise alone, the earliest first."""
        return sorted(self._classes, key=lambda index: (self._classes[index], index))

    @cached_property
    def _classes(self) -> dict[int, int]:
        prices = {
            index: price(self.recording, index, self.launching)
            for index, site in enumerate(self.recording.sites)
            if index not in self.family.anchors and (self.family.replays or not site.replayed)
        }
        return {
            index: _price_class(cost, self.tuning.price_class)
            for index, cost in prices.items()
            if cost is not None
        }

    def kept(self) -> Plan:
        """Return the plan that keeps everything."""
        choices = tuple[Choice, ...](["keep"] * len(self.recording.sites))
        return _Candidate(0, self.family, self.native, choices).plan(self)

    def look_everywhere(self) -> Iterator[None]:
        """Look at the ends of each class of prices, then between two of them wherever a better candidate may be; yield
        after each part of that.
        """
        classes = [self._classes[index] for index in self.cheapest]
        ends = [index for index in range(1, len(classes)) if classes[index] != classes[index - 1]]
        self.look([0, *ends[:: self.tuning.classes_at_once], len(classes)])
        yield
        for _ in range(self.tuning.refinements):
            if self.best is not None and self.best.family != self.family:
                return
            hope, middle = self._most_hopeful()
            if hope > self._to_beat - self.tuning.refinement_gain * self.native.seconds or hope == float(
                "inf"
            ):
                return
            self.look([middle])
            yield

    def _most_hopeful(self) -> tuple[float, int]:
        """Return the least seconds of any candidate between two neighbours that were seen, and the one in their middle.

        A candidate in between rebuilds no less than the first, and is unlikely to wait less than both, unless the
        second had to swap some of what it would rebuild.
        """
        hopes = [(float("inf"), 0)]
        for (low, first), (high, second) in pairwise(sorted(self.seen.items())):
            if high > low + 1:
                waiting = 0.0 if first.fits and not second.fits else min(first.waiting, second.waiting)
                hopes.append((self.native.seconds + first.rebuilding + waiting, (low + high) // 2))
        return min(hopes)

    def climb(self, start: int) -> Iterator[None]:
        """Go from a candidate to a neighbour as long as one is better, in smaller and smaller strides; yield after each
        part of that.
        """
        self.look([start])
        yield
        for stride in self.tuning.search_strides:
            centre = None
            while centre != start:
                centre = start
                self.look([centre - stride, centre + stride])
                start = centre if self.best is None else self.best.count
                yield

    def look(self, counts: Iterable[int]) -> None:
        """Play the candidates with these counts that may be faster than the best, the most promising first."""
        unseen = (count for count in counts if count not in self.seen)
        new = {count: self.rebuilt(count) for count in unseen if 0 <= count <= len(self.cheapest)}
        self.seen |= {count: self._at_least(rebuilt) for count, rebuilt in new.items()}
        for count in sorted(new, key=lambda count: self.seen[count].seconds):
            least = self.native.seconds + self.seen[count].seconds
            if least < self._to_beat:
                self._try(count, new[count])

    def _at_least(self, rebuilt: set[int]) -> _LeastCost:
        """Return the least cost of a candidate: by the step's highest moment, what is over the limit must have left."""
        sites, native = self.recording.sites, self.native
        cost = sum(sites[index].recipe_s or 0.0 for index in rebuilt)
        launched_s = self.launching.of_rebuilt(self.recording, rebuilt)
        moment = native.peak_interval
        gone = sum(sites[index].bytes for index in rebuilt if sites[index].pack < moment)
        leaving_s = (native.peak - self.limit - gone) / self.rates.out
        waiting = max(0.0, leaving_s - native.times[moment] - cost)
        return _LeastCost(cost + launched_s, waiting, False)

    def _try(self, count: int, rebuilt: set[int]) -> None:
        """Play a candidate with as few swaps as fit, and keep it if it is the best."""
        others = self.swappable(rebuilt)
        nearest = min(self.tried, key=lambda known: abs(known - count), default=None)
        guess = len(others) if nearest is None else self.tried[nearest]
        found = self._fewest_swaps(rebuilt, others, guess)
        fits = found is not None
        found = found or self._eased(rebuilt)
        if found is None:
            return
        swaps, timeline, choices = found
        timeline = self._launched(timeline, choices)
        self.tried[count] = swaps
        self.seen[count] = _LeastCost(timeline.recipe_s + timeline.launch_s, timeline.stall_s, fits)
        self._note(timeline)
        if timeline.host_peak <= self.host and (
            self.best is None or timeline.seconds < self.best.timeline.seconds
        ):
            self.best = _Candidate(count, self.family, timeline, choices)

    def _launched(self, timeline: Timeline, choices: tuple[Choice, ...]) -> Timeline:
        """Return a timeline with the time in which the device waits for launching."""
        launch_s = self.launching.of(self.recording, choices)
        return replace(timeline, seconds=timeline.seconds + launch_s, launch_s=launch_s)

    def rebuilt(self, count: int) -> set[int]:
        """Return the `count` cheapest sites, without those at the end of too long a chain of recipes."""
        depths: dict[int, int] = {}
        for index in sorted(self.cheapest[:count]):
            depth = 1 + max((depths.get(need, 0) for need in self.recording.sites[index].needs), default=0)
            if depth <= self.family.depth:
                depths[index] = depth
        return set(depths)

    def swappable(self, rebuilt: set[int]) -> list[int]:
        """Return the sites that are not rebuilt and whose leaving frees memory."""
        return [
            index
            for index, site in enumerate(self.recording.sites)
            if index not in rebuilt and (not site.uses or site.held < site.uses[0])
        ]

    def _fewest_swaps(
        self, rebuilt: set[int], others: list[int], guess: int
    ) -> tuple[int, Timeline, tuple[Choice, ...]] | None:
        """Return the smallest number of swaps that fits, looked for around a guess in growing steps."""
        low, high, step = 0, len(others), 1
        middle = min(guess, high)
        found = None
        near = len(others) // self.tuning.swaps_tolerance  # a few more than it takes cost little
        while low <= high and not (found is not None and high - low < near):
            choices = self._choices(rebuilt, others[:middle])
            timeline = play_within(self.recording, choices, self.rates, self.limit, self.tuning)
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
        """Return a candidate that swaps instead of rebuilds where rebuilding itself takes too much memory."""
        for _ in range(self.tuning.eased_tries):
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
        timeline = play(self.recording, choices, self.rates, self.limit, self.tuning)
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
        """Return the lowest peak that was reached, and the error that tells about it."""
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
    """Return whether one of the sorted moments is between the first event and the one after the last."""
    place = bisect_left(moments, first)
    return place < len(moments) and moments[place] <= last + 1


def _price_class(price: float, factor: float) -> int:
    """Return the number of the class of a price; classes are a factor wide, and all that is nearly free is class 0."""
    value, result = 1e-14, 0
    while value < price:
        value, result = value * factor, result + 1
    return result
