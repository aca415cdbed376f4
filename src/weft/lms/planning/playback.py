"""Playback: the memory and time of a recorded step under a choice for every site, event by event. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

from weft.lms.planning.recording import NEVER, Rates, Recording
from weft.lms.tuning import DEFAULTS, LmsTuning

Choice = Literal["keep", "recipe", "swap"]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The course of a step under a plan: memory and time by event, and when storages leave and return."""

    peak: int  # bytes
    peak_interval: int
    seconds: float
    recipe_s: float  # spent rebuilding
    stall_s: float  # spent waiting for copies
    moved: int  # bytes out, and as many back
    host_peak: int  # bytes
    releases: dict[int, tuple[int, ...]]  # by event, the sites that leave the device
    fetches: dict[int, tuple[int, ...]]  # by event, the sites whose copies back start
    levels: tuple[int, ...]  # the most bytes in each interval
    ahead: tuple[int, ...]  # the most bytes in each interval and all after it
    launch_s: float = 0.0  # of `seconds`, in which the device waits for the launching that the plan adds
    times: tuple[float, ...] = ()  # of the clock after each event, in seconds
    back: tuple[float, ...] = ()  # link seconds of all copies back that started until each event


def first_needs(recording: Recording, choices: Sequence[Choice]) -> list[int]:
    """Return for each site the event at which it must be on the device again: its own first use, or that of a site that
    is rebuilt from it.
    """
    needs = [site.uses[0] if site.uses else NEVER for site in recording.sites]
    for index in reversed(range(len(needs))):
        if choices[index] == "recipe":
            for source in recording.sites[index].needs:
                needs[source] = min(needs[source], needs[index])
    return needs


def play(
    recording: Recording, choices: Sequence[Choice], rates: Rates, limit: int, tuning: LmsTuning = DEFAULTS
) -> Timeline:
    """Play a step. Copies go out in the order of saving, and come back as late as no use waits for them.

    A site leaves the device when its copy is done; where memory would go over `limit` before that, the compute waits.
    """
    return _Player(recording, choices, rates, limit, tuning=tuning).play()


def play_within(
    recording: Recording, choices: Sequence[Choice], rates: Rates, limit: int, tuning: LmsTuning = DEFAULTS
) -> Timeline | None:
    """Play a step, but no further than to where its memory goes over `limit`; that gives None."""
    try:
        return _Player(recording, choices, rates, limit, highest=limit, tuning=tuning).play()
    except _OverError:
        return None


class _OverError(Exception):
    """The memory of a step went over the limit that it is played with."""


class _Player:
    """The state of a step that is being played."""

    def __init__(
        self,
        recording: Recording,
        choices: Sequence[Choice],
        rates: Rates,
        limit: int,
        highest: int = 1 << 62,
        tuning: LmsTuning = DEFAULTS,
    ) -> None:
        self.tuning = tuning
        self.recording, self.choices, self.rates, self.limit = recording, choices, rates, limit
        self.highest = highest  # bytes above which playing stops
        self.needs = first_needs(recording, choices)
        self.packs, self.ends, self.other = recording.packs, recording.ends, recording.other
        self.held_ends = self._held_ends()
        self.later_ends: dict[int, list[int]] = defaultdict(
            list
        )  # by interval, sites that end in it for that reason
        for index, event in self.held_ends.items():
            self.later_ends[event].append(index)
        self.wanted: dict[int, list[int]] = defaultdict(
            list
        )  # by event, sites that are not kept and first needed
        self.loosed: dict[int, list[int]] = defaultdict(list)  # by interval, sites that others let go in it
        for index, choice in enumerate(choices):
            if choice != "keep":
                self.wanted[self.needs[index]].append(index)
        self.clock = self.recipe_s = self.stall_s = self.out_free = self.back_free = self.back_s = 0.0
        self.levels = [0] * len(recording.seconds)  # bytes in each interval
        self.ours = self.swapped = self.peak = self.peak_interval = self.moved = self.host = (
            self.host_peak
        ) = 0
        self.here = [False] * len(recording.sites)
        self.leaving: deque[tuple[int, float]] = deque()  # sites, and when their copies out are done
        self.coming: dict[int, float] = {}  # sites, and when their copies back are done
        self.releases: dict[int, list[int]] = defaultdict(list)
        self.fetches: dict[int, list[int]] = defaultdict(list)
        self.released: set[int] = set()
        self.stays: set[int] = set()  # sites that came back: they leave at their end and not before
        self.queue = deque(self._latest_starts())
        self.host_waits = frozenset(recording.waits)
        self.times: list[float] = []
        self.back: list[float] = []

    def _held_ends(self) -> dict[int, int]:
        """Return the intervals in which sites end that are wanted longest by others, which are rebuilt from them."""
        sites, found = self.recording.sites, dict[int, int]()
        for index, need in enumerate(self.needs):
            if self.choices[index] == "recipe" and need < NEVER:
                for source in sites[index].needs:
                    if need > sites[source].last and need >= found.get(source, 0):
                        found[source] = need + 1
        return found

    def _latest_starts(self) -> list[tuple[int, int]]:
        """Return (event, site) for each copy back: the latest event at which it can start so that nobody waits."""
        costs: dict[int, float] = defaultdict(float)
        for index, site in enumerate(self.recording.sites):
            if self.choices[index] == "recipe" and site.uses:
                costs[self.needs[index]] += site.recipe_s or 0.0
        steps = [value + costs.get(event, 0.0) for event, value in enumerate(self.recording.seconds)]
        times = list(accumulate(steps))
        swapped = [
            index
            for index, site in enumerate(self.recording.sites)
            if self.choices[index] == "swap" and site.uses
        ]
        swapped.sort(key=lambda index: self.needs[index], reverse=True)
        saves = [event for event, sites in enumerate(self.packs) if sites]
        lead_s, margin = self.tuning.fetch_lead_s, self.tuning.copy_time_margin
        starts, free = [], float("inf")
        for index in swapped:
            need = self.needs[index]
            free = (
                min(free, times[need] - lead_s) - margin * self.recording.sites[index].bytes / self.rates.back
            )
            # Not while more is still being saved: free memory is for that.
            last_save = saves[bisect_right(saves, need) - 1]
            starts.append((max(last_save, bisect_right(times, free) - 1), index))
        return starts[::-1]

    def play(self) -> Timeline:
        events = self.recording.events
        for event, seconds in enumerate(self.recording.seconds):
            self.clock += seconds
            if event in self.host_waits:
                self._wait(self.out_free)
            self._look(event)
            if event < events:
                self._at(event)
            self.times.append(self.clock)
            self.back.append(self.back_s)
        return Timeline(
            peak=self.peak,
            peak_interval=self.peak_interval,
            seconds=self.clock,
            recipe_s=self.recipe_s,
            stall_s=self.stall_s,
            moved=self.moved,
            host_peak=self.host_peak,
            releases={event: tuple(sites) for event, sites in self.releases.items()},
            fetches={event: tuple(sites) for event, sites in self.fetches.items()},
            levels=tuple(self.levels),
            ahead=tuple(accumulate(reversed(self.levels), max))[::-1],
            times=tuple(self.times),
            back=tuple(self.back),
        )

    def _look(self, interval: int) -> None:
        """Take in the memory of an interval that ended, and let go of the sites that were used last in it."""
        self._reach(self.ours + self.other[interval], interval)
        for index in self.loosed.get(interval, ()):
            if index not in self.stays:
                self._leave(index)
        for index in self.ends[interval]:
            if index not in self.held_ends:
                self._end(index)
        for index in self.later_ends.get(interval, ()):
            self._end(index)

    def _end(self, index: int) -> None:
        self._leave(index)
        if self.choices[index] == "swap":
            self.host -= self.recording.sites[index].bytes

    def _reach(self, memory: int, interval: int) -> None:
        if memory > self.levels[interval]:
            self.levels[interval] = memory
        if memory > self.peak:
            self.peak, self.peak_interval = memory, interval
            if memory > self.highest:
                raise _OverError

    def _at(self, event: int) -> None:
        for index in self.packs[event]:
            self._save(index, event)
        while self.leaving and self.leaving[0][1] <= self.clock:
            self._release(event)
        if self.queue and self.queue[0][0] <= event:
            self._fetch_due(event)
        for index in self.wanted.get(event, ()):
            self._want(index, event)
        while self.leaving and self.ours + self.other[event + 1] > self.limit:
            self._wait(self.leaving[0][1])
            self._release(event)

    def _save(self, index: int, event: int) -> None:
        site, choice = self.recording.sites[index], self.choices[index]
        self._enter(index)
        if choice == "swap":
            self.out_free = max(self.clock, self.out_free) + site.bytes / self.rates.out
            self.leaving.append((index, self.out_free))
            self.moved += site.bytes
            self.host += site.bytes
            self.host_peak = max(self.host_peak, self.host)
        elif choice == "recipe":
            self._leave_when_loose(index, event)

    def _leave_when_loose(self, index: int, event: int) -> None:
        held = self.recording.sites[index].held
        if held > event:
            self.loosed[held].append(index)
        else:
            self._leave(index)

    def _release(self, event: int) -> None:
        index, _ = self.leaving.popleft()
        if index not in self.stays:
            self.releases[event].append(index)
            self.released.add(index)
            self._leave_when_loose(index, event)

    def _fetch_due(self, event: int) -> None:
        """Start the copies back that are due, as long as there is room for them until they are used."""
        while self.queue and self.queue[0][0] <= event:
            index = self.queue[0][1]
            site, need = self.recording.sites[index], self.needs[index]
            came = self.swapped + site.bytes
            if need > event and came + max(self.expected[event + 1 : need + 1]) > self.limit:
                return
            self.queue.popleft()
            self._return(index, event)

    @cached_property
    def expected(self) -> list[int]:
        """The bytes in each interval without those of swapped sites: what is made again takes room before it is there,
        so nothing that comes back early may have that.
        """
        change = [0] * (len(self.other) + 1)
        for index, site in enumerate(self.recording.sites):
            if self.choices[index] != "swap":
                begin = site.pack if self.choices[index] == "keep" else self.needs[index]
                end = max(site.last + 1, self.held_ends.get(index, 0))
                if begin < end:
                    change[begin + 1] += site.bytes
                    change[min(end, len(self.other) - 1) + 1] -= site.bytes
        return [ours + other for ours, other in zip(accumulate(change), self.other, strict=False)]

    def _return(self, index: int, event: int) -> None:
        """Start the copy back of a site; one that others still hold is on the device without a copy."""
        self.stays.add(index)
        if not self.here[index]:
            self._fetch(index, event)
        elif index in self.released:
            self.fetches[event].append(index)
        self.released.discard(index)

    def _fetch(self, index: int, event: int) -> None:
        size = self.recording.sites[index].bytes
        self.back_free = max(self.clock, self.back_free) + size / self.rates.back
        self.back_s += size / self.rates.back
        self.coming[index] = self.back_free
        self.fetches[event].append(index)
        self._enter(index)

    def _want(self, index: int, event: int) -> None:
        if self.choices[index] == "recipe":
            cost = self.recording.sites[index].recipe_s or 0.0
            self.clock += cost
            self.recipe_s += cost
            self.stays.add(index)
            self._enter(index)
            if self.recording.rest:
                taken = self.recording.sites[index].recipe_bytes + self.recording.rest[event + 1]
                self._reach(self.ours + taken, event)
            return
        if index not in self.stays:
            self.queue = deque(due for due in self.queue if due[1] != index)
            self._return(index, event)
        if index in self.coming:
            self._wait(self.coming.pop(index))

    def _wait(self, until: float) -> None:
        self.stall_s += max(0.0, until - self.clock)
        self.clock = max(self.clock, until)

    def _enter(self, index: int) -> None:
        if not self.here[index]:
            self.here[index] = True
            self.ours += self.recording.sites[index].bytes
            if self.choices[index] == "swap":
                self.swapped += self.recording.sites[index].bytes

    def _leave(self, index: int) -> None:
        if self.here[index]:
            self.here[index] = False
            self.ours -= self.recording.sites[index].bytes
            if self.choices[index] == "swap":
                self.swapped -= self.recording.sites[index].bytes
