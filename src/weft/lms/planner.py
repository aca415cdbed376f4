"""Which sites to keep, rebuild or swap, so that the peak stays under a budget at the least cost. Pure.

Rebuilding has a price in seconds for each byte; swapping is free as long as the link to the host is idle anyway, and
dear after that. So plans form a family: rebuild the k cheapest sites, swap as many of the others as it takes, earliest
first, since those have the most time to leave and come back last. Each member is played through; the fastest one
that fits is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import BudgetError
from weft.lms.plan import Plan
from weft.lms.recording import Rates, Recording
from weft.lms.sizes import round_up, show_bytes
from weft.lms.timeline import Choice, Timeline, play

CLASS = 1.5  # prices within this factor of each other are tried together first
REFINED = 6  # members tried on each side of the best one
DEPTHS = (
    4,
    9,
)  # of recipes that need what other recipes make: about half a transformer's block, and a whole one


def make_plan(recording: Recording, limit: int, rates: Rates, host: int | None = None) -> Plan:
    """The fastest plan whose peak is at most `limit` bytes; BudgetError where there is none."""
    searches = [
        _Search(recording, limit, rates, 1 << 62 if host is None else host, depth) for depth in DEPTHS
    ]
    plans = [plan for search in searches if (plan := search.best()) is not None]
    if not plans:
        raise min((search.failure() for search in searches), key=lambda failure: failure[0])[1]
    return min(plans, key=lambda plan: plan.timeline.seconds)


def price(recording: Recording, index: int) -> float | None:
    """Seconds a byte to rebuild a site; None where it cannot be, or where it would free nothing."""
    site = recording.sites[index]
    if site.recipe_s is None or site.bytes == 0 or not site.uses:
        return None
    return site.recipe_s / site.bytes


class _Search:
    def __init__(self, recording: Recording, limit: int, rates: Rates, host: int, depth: int) -> None:
        self.recording, self.limit, self.rates, self.host = recording, limit, rates, host
        self.depth = depth
        self.played: dict[tuple[int, int], tuple[Timeline, tuple[Choice, ...]]] = {}
        prices = {
            index: cost
            for index in range(len(recording.sites))
            if (cost := price(recording, index)) is not None
        }
        # Prices that differ by noise alone count as one; within a class the earliest site is first.
        self.cheapest = sorted(prices, key=lambda index: (_class(prices[index]), index))
        self.classes = [_class(prices[index]) for index in self.cheapest]
        self.native = play(recording, ["keep"] * len(recording.sites), rates, 1 << 62)

    def best(self) -> Plan | None:
        keep = tuple[Choice, ...](["keep"] * len(self.recording.sites))
        if self.native.peak <= self.limit:
            return self._plan(self.native, keep)
        fitting: dict[int, tuple[Timeline, tuple[Choice, ...]]] = {}
        for count in self._boundaries():
            self._try(count, fitting)
        if not fitting:
            return None
        for _ in range(2):
            for count in self._between(fitting):
                self._try(count, fitting)
        return self._plan(*min(fitting.values(), key=lambda found: found[0].seconds))

    def _plan(self, timeline: Timeline, choices: tuple[Choice, ...]) -> Plan:
        return Plan(
            limit=self.limit,
            recording=self.recording,
            choices=choices,
            timeline=timeline,
            native=self.native,
            keys=tuple(site.key for site in self.recording.sites),
        )

    def _boundaries(self) -> list[int]:
        """Where one class of prices ends, and nothing, and all."""
        ends = [
            index for index in range(1, len(self.classes)) if self.classes[index] != self.classes[index - 1]
        ]
        return [0, *ends, len(self.cheapest)] if self.cheapest else [0]

    def _between(self, fitting: dict[int, tuple[Timeline, tuple[Choice, ...]]]) -> Sequence[int]:
        """Members between the best one so far and its neighbours that were tried."""
        tried = sorted({count for count, _ in self.played})
        centre = min(fitting, key=lambda count: fitting[count][0].seconds)
        place = tried.index(centre)
        low, high = tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)]
        step = max(1, (high - low) // (2 * REFINED))
        return range(low, high + 1, step)

    def _try(self, count: int, fitting: dict[int, tuple[Timeline, tuple[Choice, ...]]]) -> None:
        if count in fitting:
            return
        found = self._fewest_swaps(count)
        if found is not None:
            fitting[count] = found

    def _fewest_swaps(self, count: int) -> tuple[Timeline, tuple[Choice, ...]] | None:
        """With the `count` cheapest sites rebuilt, the smallest number of swaps that fits."""
        rebuilt = self._rebuilt(count)
        others = [
            index
            for index, site in enumerate(self.recording.sites)
            if index not in rebuilt and (not site.uses or site.held < site.uses[0])
        ]
        low, high = 0, len(others)
        found = None
        if self._play(count, others, high)[0].peak > self.limit:
            return None
        while low <= high:
            middle = (low + high) // 2
            result = self._play(count, others, middle)
            if result[0].peak <= self.limit:
                found, high = result, middle - 1
            else:
                low = middle + 1
        if found is not None and found[0].host_peak > self.host:
            return None
        return found

    def _rebuilt(self, count: int) -> set[int]:
        """The cheapest, less those at the end of too long a chain: to rebuild one would be to rebuild all before it."""
        depths: dict[int, int] = {}
        for index in sorted(self.cheapest[:count]):
            depth = 1 + max((depths.get(need, 0) for need in self.recording.sites[index].needs), default=0)
            if depth <= self.depth:
                depths[index] = depth
        return set(depths)

    def _play(self, count: int, others: list[int], swaps: int) -> tuple[Timeline, tuple[Choice, ...]]:
        known = self.played.get((count, swaps))
        if known is not None:
            return known
        choices: list[Choice] = ["keep"] * len(self.recording.sites)
        for index in self._rebuilt(count):
            choices[index] = "recipe"
        for index in others[:swaps]:
            choices[index] = "swap"
        result = (play(self.recording, choices, self.rates, self.limit), tuple(choices))
        self.played[count, swaps] = result
        return result

    def failure(self) -> tuple[int, BudgetError]:
        """The least bytes that were reached, and what to say about it."""
        least, _ = min(self.played.values(), key=lambda found: found[0].peak)
        if least.peak <= self.limit:
            return 0, BudgetError(
                f"host must hold what is swapped, {show_bytes(least.host_peak)}, got {show_bytes(self.host)}; "
                f"write host='{round_up(least.host_peak)}' or a larger limit"
            )
        label = self.recording.label(least.peak_interval)
        other = self.recording.other[least.peak_interval]
        return least.peak, BudgetError(
            f"limit must hold the working set of {label}, {show_bytes(least.peak)} of which "
            f"{show_bytes(other)} are not saved tensors, got {show_bytes(self.limit)}; the smallest that works "
            f"is limit='{round_up(int(least.peak * 1.03))}'"
        )


def _class(price: float) -> int:
    """Prices in classes a factor of CLASS wide; what is all but free is one class."""
    value, result = 1e-14, 0
    while value < price:
        value, result = value * CLASS, result + 1
    return result
