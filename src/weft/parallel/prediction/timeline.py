"""A timeline of a worker: its processor, its network and its host's memory, each doing one thing at a time. Pure.

Tasks are added in the order in which a program starts them, so each begins when its resource is free and what it waits
for has ended. Where the threads that move bytes need the cores that compute, computing takes longer while the network
works.
"""

from __future__ import annotations

from weft.parallel.prediction.costs import CollectiveCost

COMPUTE, NETWORK, MEMORY = "compute", "network", "memory"


class WorkerTimeline:
    """The ends of all tasks so far, by resource, and what they added up to."""

    def __init__(self, beside_network: float = 1.0) -> None:
        self._beside_network = (
            beside_network  # times as long as alone that computing takes while the network works
        )
        self._sending: list[
            tuple[float, float]
        ] = []  # when the network works, in order, without gaps of nothing
        self._free = {COMPUTE: 0.0, NETWORK: 0.0, MEMORY: 0.0}
        self._busy = dict(self._free)
        self.card_bytes = 0.0
        self.uplink_bytes = 0.0
        self.collectives = 0

    @property
    def now(self) -> float:
        """When the processor is done with what it was given."""
        return self._free[COMPUTE]

    @property
    def end(self) -> float:
        return max(self._free.values())

    def busy_s(self, resource: str) -> float:
        return self._busy[resource]

    def compute(self, seconds: float, after: float = 0.0) -> float:
        """Compute once `after` has passed; return when it began."""
        began = max(self._free[COMPUTE], after)
        self._free[COMPUTE] = began + self._stretched(seconds, began)
        self._busy[COMPUTE] += seconds
        return began

    def _stretched(self, seconds: float, began: float) -> float:
        """Return how long computing takes from `began` on, beside what the network has been given so far."""
        if self._beside_network == 1.0:
            return seconds
        self._sending = [(first, last) for first, last in self._sending if last > began]
        now, left = began, seconds
        for first, last in self._sending:
            alone = max(0.0, first - now)
            if alone >= left:
                break
            left -= alone
            now = max(now, first)
            beside = min(left, (last - now) / self._beside_network)
            now, left = now + beside * self._beside_network, left - beside
        return now + left - began

    def wait(self, until: float) -> None:
        """Let the processor wait."""
        self._free[COMPUTE] = max(self._free[COMPUTE], until)

    def exchange(self, cost: CollectiveCost, after: float, *, overlap: bool) -> float:
        """Carry out a collective; return when it has ended. Without overlap the processor waits for it."""
        resource = NETWORK if cost.card_bytes else MEMORY
        began = max(self._free[resource], after)
        ended = self._free[resource] = began + cost.seconds
        self._busy[resource] += cost.seconds
        if resource == NETWORK and self._beside_network != 1.0:
            self._note_sending(began, ended)
        self.card_bytes += cost.card_bytes
        self.uplink_bytes += cost.uplink_bytes
        self.collectives += 1
        if not overlap:
            self.wait(ended)
        return ended

    def _note_sending(self, began: float, ended: float) -> None:
        if self._sending and self._sending[-1][1] >= began:
            self._sending[-1] = (self._sending[-1][0], ended)
        else:
            self._sending.append((began, ended))
