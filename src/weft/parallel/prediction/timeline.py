"""A timeline of a worker: its processor, its network and its host's memory, each doing one thing at a time. Pure.

Tasks are added in the order in which a program starts them, so each begins when its resource is free and what it waits
for has ended. Where the threads that move bytes need the cores that compute, both take longer while both work.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.parallel.prediction.costs import CollectiveCost

COMPUTE, NETWORK, MEMORY = "compute", "network", "memory"


@dataclass(frozen=True)
class SharedCores:
    """The cores of a worker that computes while bytes are moved: how much longer each takes beside the other."""

    computing: float = 1.0  # times as long
    network: float = 1.0

    @classmethod
    def of(cls, cores: float, computing: float, moving: float) -> SharedCores:
        """Share the cores between threads that would keep so many busy: nobody gets less than half if they need it."""
        if not cores or not moving or not computing or computing + moving <= cores:
            return cls()
        for_moving = min(moving, max(cores / 2, cores - computing))
        for_computing = min(computing, cores - for_moving)
        return cls(computing / for_computing, moving / for_moving)


@dataclass
class NetworkTask:
    """A collective between hosts: when it begins and ends, as far as is known."""

    began: float
    ended: float


class WorkerTimeline:
    """The ends of all tasks so far, by resource, and what they added up to."""

    def __init__(self) -> None:
        self._sending: list[NetworkTask] = []  # what the network does from now on, in order
        self._free = {COMPUTE: 0.0, NETWORK: 0.0, MEMORY: 0.0}
        self._busy = dict(self._free)
        self.card_bytes = 0.0
        self.uplink_bytes = 0.0
        self.collectives = 0

    @property
    def now(self) -> float:
        """Return when the processor is done with what it was given."""
        return self._free[COMPUTE]

    @property
    def end(self) -> float:
        return max(self._free.values())

    def busy_s(self, resource: str) -> float:
        return self._busy[resource]

    def compute(self, seconds: float, shared: SharedCores = SharedCores()) -> None:
        """Compute, beside what the network has been given so far."""
        self.work(seconds, shared)
        self._busy[COMPUTE] += seconds

    def work(self, seconds: float, shared: SharedCores = SharedCores()) -> None:
        """Keep the processor busy with what is no computing: copies, say."""
        if shared.computing == shared.network == 1.0:
            self._free[COMPUTE] += seconds
            return
        began = self.now
        self._sending = [task for task in self._sending if task.ended > began]
        now, left = began, seconds
        for number, task in enumerate(self._sending):
            alone = max(0.0, task.began - now)
            if alone >= left:
                break
            left -= alone
            now = max(now, task.began)
            # Until the task has ended, or all is computed.
            beside_s = min(left * shared.computing, (task.ended - now) * shared.network)
            lost_s = beside_s * (1 - 1 / shared.network)
            task.ended += lost_s
            for later in self._sending[number + 1 :]:
                later.began += lost_s
                later.ended += lost_s
            self._free[NETWORK] += lost_s
            self._busy[NETWORK] += lost_s
            now += beside_s
            left -= beside_s / shared.computing
        self._free[COMPUTE] = now + left

    def wait(self, until: float) -> None:
        """Let the processor wait."""
        self._free[COMPUTE] = max(self._free[COMPUTE], until)

    def exchange(self, cost: CollectiveCost, after: float, *, overlap: bool) -> NetworkTask:
        """Carry out a collective; return when it ends. Without overlap the processor waits for it."""
        resource = NETWORK if cost.card_bytes else MEMORY
        began = max(self._free[resource], after)
        ended = self._free[resource] = began + cost.seconds
        self._busy[resource] += cost.seconds
        task = NetworkTask(began, ended)
        if resource == NETWORK:
            self._sending.append(task)
        self.card_bytes += cost.card_bytes
        self.uplink_bytes += cost.uplink_bytes
        self.collectives += 1
        if not overlap:
            self.wait(ended)
        return task
