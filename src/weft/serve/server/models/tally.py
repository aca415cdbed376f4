"""The figures of a model since it was loaded, counted on the event loop only: plain numbers, no locks.

`metrics.py` shows them to Prometheus, `descriptions.py` to whoever asks for V2 statistics.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from time import time

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclass
class Histogram:
    """The number of values between each pair of bounds, and the sum of all values."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants them: cumulative, with the upper bound as text."""
        found: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            found.append((bound, float(seen)))
        return found


@dataclass
class Tally:
    """One version of one model."""

    successes: int = 0
    failures: dict[int, int] = field(default_factory=dict)  # by status
    failed_s: float = 0.0
    cancelled: int = 0  # left the queue uncomputed: the client was gone
    rows: int = 0
    at_once: int = 0  # requests that did not wait at all
    latency: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    waiting: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    computing: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    batches: dict[int, list[float]] = field(default_factory=dict)  # rows: [times, seconds]
    last: float = 0.0  # seconds since the epoch

    def answered(self, seconds: float) -> None:
        self.successes += 1
        self.latency.add(seconds)
        self.last = time()

    def failed(self, status: int, seconds: float) -> None:
        self.failures[status] = self.failures.get(status, 0) + 1
        self.failed_s += seconds

    def ran(self, rows: int, seconds: float) -> None:
        self.rows += rows
        self.computing.add(seconds)
        found = self.batches.get(rows)
        if found is None:
            found = self.batches[rows] = [0, 0.0]
        found[0] += 1
        found[1] += seconds

    def queued(self) -> Histogram:
        """Return how long requests waited."""
        found = Histogram(SECONDS)
        found.counts = [self.waiting.counts[0] + self.at_once, *self.waiting.counts[1:]]
        found.total = self.waiting.total
        return found

    def sizes(self) -> Histogram:
        """Rows of the runs."""
        found = Histogram(SIZES)
        for rows, (times, _) in self.batches.items():
            found.counts[bisect_left(SIZES, rows)] += int(times)
            found.total += rows * times
        return found
