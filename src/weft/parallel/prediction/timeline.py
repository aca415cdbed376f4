"""A timeline of a worker: its processor, its network and its host's memory, each doing one thing at a time. Pure.

Tasks are added in the order in which a program starts them, so each begins when its resource is free and what it waits
for has ended.
"""

from __future__ import annotations

from weft.parallel.prediction.costs import CollectiveCost

COMPUTE, NETWORK, MEMORY = "compute", "network", "memory"


class WorkerTimeline:
    """The ends of all tasks so far, by resource, and what they added up to."""

    def __init__(self) -> None:
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
        self._free[COMPUTE] = began + seconds
        self._busy[COMPUTE] += seconds
        return began

    def wait(self, until: float) -> None:
        """Let the processor wait."""
        self._free[COMPUTE] = max(self._free[COMPUTE], until)

    def exchange(self, cost: CollectiveCost, after: float, *, overlap: bool) -> float:
        """Carry out a collective; return when it has ended. Without overlap the processor waits for it."""
        resource = NETWORK if cost.card_bytes else MEMORY
        began = max(self._free[resource], after)
        ended = self._free[resource] = began + cost.seconds
        self._busy[resource] += cost.seconds
        self.card_bytes += cost.card_bytes
        self.uplink_bytes += cost.uplink_bytes
        self.collectives += 1
        if not overlap:
            self.wait(ended)
        return ended
