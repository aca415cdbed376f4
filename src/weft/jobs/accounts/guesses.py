"""The limit on guesses of passwords: so many failures for an address and for a name within some minutes."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic

MOST_KNOWN = 10_000  # addresses and names that are remembered


class GuessLimit:
    """Counts failures by key; a success forgets them."""

    def __init__(
        self, most: int = 10, within_s: float = 300.0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._most, self._within_s, self._clock = most, within_s, clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, *keys: str) -> float:
        """Return how long one must wait before the next try with these keys; 0: none."""
        return max((self._wait_s(key) for key in keys), default=0.0)

    def failed(self, *keys: str) -> None:
        for key in keys:
            times = self._failures.setdefault(key, deque(maxlen=self._most))
            times.append(self._clock())
            self._failures.move_to_end(key)
        while len(self._failures) > MOST_KNOWN:
            self._failures.popitem(last=False)

    def succeeded(self, *keys: str) -> None:
        for key in keys:
            self._failures.pop(key, None)

    def _wait_s(self, key: str) -> float:
        times = self._failures.get(key)
        if times is None or len(times) < self._most:
            return 0.0
        return max(0.0, times[0] + self._within_s - self._clock())
