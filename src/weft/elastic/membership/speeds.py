"""Speeds of workers and of links, compared: which of them are slow, and which shares of a batch would suit them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

SLOW_FACTOR = 1.4  # times the others' duration of a micro-batch; a worker 1.5 times as slow is surely found
SLOW_MICROS = 6  # micro-batches of every worker over which speeds are compared
RARE_FACTOR = (
    4  # a window also ends when one worker has computed this many times SLOW_MICROS: others may have few
)
FEWEST_MICROS = 2  # micro-batches of a worker in a window below which its speed is not judged
LEAST_WEIGHT = 0.05  # the smallest share of a slow worker, where 1 is a whole one
WEIGHT_CHANGE = 0.2  # relative; shares move only when a change of view is worth it
LINK_FACTOR = 4.0  # times the others' round trip, for a link to be slow
LINK_S = 0.02  # seconds beyond the others' round trip, for a link to be slow


class Speeds:
    """Workers that take longer for a micro-batch than the others, from looks at how many each has computed, and when.

    Speeds are compared over windows in which every worker has computed some. A worker is slow, or no longer slow, when
    two windows in a row say so.
    """

    def __init__(self, micros: int = SLOW_MICROS, factor: float = SLOW_FACTOR) -> None:
        self._micros, self._factor = micros, factor
        self._since: dict[str, tuple[int, float]] = {}  # micro-batches and busy seconds when the window began
        self._before: frozenset[str] = frozenset()  # slow in the last window
        self.seconds: dict[str, float] = {}  # for a micro-batch, in the last window
        self.slow: frozenset[str] = frozenset()

    def look(self, counts: Mapping[str, tuple[int, float]]) -> bool:
        """Take in the micro-batches and busy seconds of each worker; return whether that ended a window."""
        if counts.keys() != self._since.keys():
            self._begin(counts)
            return False
        done = {worker: counts[worker][0] - self._since[worker][0] for worker in counts}
        fewest, most = min(done.values(), default=0), max(done.values(), default=0)
        if fewest < self._micros and most < RARE_FACTOR * self._micros:
            return False
        self.seconds = {
            worker: (counts[worker][1] - self._since[worker][1]) / count
            for worker, count in done.items()
            if count >= FEWEST_MICROS
        }
        now = frozenset(slow_members(self.seconds, self._factor))
        self.slow = (now & self._before) | (self.slow & (now | self._before))
        self._before = now
        self._since = dict(counts)
        return True

    def _begin(self, counts: Mapping[str, tuple[int, float]]) -> None:
        """Begin a window: other workers take part than before. The first micro-batch of a worker is left out."""
        if any(not micros for micros, _ in counts.values()):
            return
        self._since = dict(counts)
        self._before &= counts.keys()
        self.slow &= counts.keys()

    @property
    def usual(self) -> float:
        """Seconds for a micro-batch of a worker that is not slow."""
        return median([own for worker, own in self.seconds.items() if worker not in self.slow] or [1.0])


class LinkSpeeds:
    """Hosts behind a slow link, from the round trips of messages between agents.

    A link that training keeps busy holds up the agents' messages as well. A host is found slow, or no longer slow, when
    two looks in a row say so; between two hosts alone, it cannot be told at whose end the link is slow.
    """

    def __init__(self) -> None:
        self._before: frozenset[str] = frozenset()
        self.slow: frozenset[str] = frozenset()

    def look(self, seconds: Mapping[tuple[str, str], float]) -> None:
        """Take in the usual round trip of each pair of agents."""
        now = frozenset(slow_links(seconds))
        self.slow = (now & self._before) | (self.slow & (now | self._before))
        self._before = now


def slow_links(seconds: Mapping[tuple[str, str], float]) -> dict[str, tuple[float, float]]:
    """Return the agents whose round trips take far longer than those between the others, with both times."""
    found = {}
    for agent in {agent for pair in seconds for agent in pair}:
        own = [time for pair, time in seconds.items() if agent in pair]
        others = [time for pair, time in seconds.items() if agent not in pair]
        if others and median(own) > max(LINK_FACTOR * median(others), median(others) + LINK_S):
            found[agent] = median(own), median(others)
    return found


def slow_members(seconds: Mapping[str, float], factor: float = SLOW_FACTOR) -> tuple[str, ...]:
    """Return the workers that take `factor` times as long for a micro-batch as the others do."""
    slow = []
    for worker, own in seconds.items():
        others = [other for name, other in seconds.items() if name != worker]
        if others and own > factor * median(others):
            slow.append(worker)
    return tuple(slow)


def weights_by_speed(
    seconds: Mapping[str, float], slow: Collection[str], now: Mapping[str, float]
) -> dict[str, float] | None:
    """Return shares by speed for slow workers and whole ones for the others; None if the present shares will do."""
    usual = median([own for worker, own in seconds.items() if worker not in slow] or [1.0])
    wanted = {
        worker: round(min(1.0, max(LEAST_WEIGHT, usual / seconds[worker])), 2)
        if worker in slow and worker in seconds
        else 1.0
        for worker in now
    }
    # Speeds are never quite the same twice: shares move only when it is worth a change of view.
    changed = any(abs(wanted[worker] - now[worker]) > WEIGHT_CHANGE * now[worker] for worker in now)
    return wanted if changed else None
