"""The scheduler's view of hosts and jobs, and the actions that it may decide on: frozen data, no behaviour.

An allocation is a tuple of (host name, workers) pairs, in the order of the hosts' names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Allocation = tuple[tuple[str, int], ...]
NO_LIMIT_S = float("inf")


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of what a host has and a worker takes."""

    cpus: float = 0.0
    memory_bytes: float = 0.0
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """One host: all it has, where it stands, and whether new workers may be placed on it."""

    name: str
    total: Resources
    rack: str = ""
    labels: frozenset[str] = frozenset()
    open: bool = True  # False: drained or not reachable


@dataclass(frozen=True, slots=True)
class Demand:
    """One worker's needs; jobs with equal demands can take each other's places."""

    per_worker: Resources
    labels: frozenset[str] = frozenset()  # all of which a host must have
    avoid: frozenset[str] = frozenset()  # hosts on which an earlier attempt failed
    _hash: int = field(init=False, repr=False, compare=False)  # computed once: demands are keys everywhere

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.per_worker, self.labels, self.avoid)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job as its owner asked for it."""

    id: int
    user: str
    demand: Demand
    submitted_s: float
    min_workers: int = 1
    max_workers: int = 1
    priority: int = 50  # 0 to 100; 100 is most urgent
    time_limit_s: float = NO_LIMIT_S  # of running time
    preemptible: bool = True  # may be paused at a checkpoint for a job of higher priority
    not_before_s: float = 0.0  # a retry's back-off, a schedule
    held: bool = False
    blocked_by: tuple[int, ...] = ()  # jobs that must complete first

    @property
    def elastic(self) -> bool:
        return self.min_workers < self.max_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One job that holds hosts: starting, running, or on its way out."""

    request: JobRequest
    allocation: Allocation  # what it holds now, workers on their way out included
    started_s: float
    leaving: Allocation = ()  # workers that were told to go and still hold their resources
    pausing: bool = False  # the whole job was told to pause at a checkpoint
    moved_s: float = -NO_LIMIT_S  # when its size was last changed
    workers: int = field(init=False)  # those that stay

    def __post_init__(self) -> None:
        staying = 0 if self.pausing else size(self.allocation) - size(self.leaving)
        object.__setattr__(self, "workers", staying)

    @property
    def staying(self) -> Allocation:
        """Return what the job holds without the workers on their way out."""
        return merged(self.allocation, self.leaving, -1) if self.leaving else self.allocation

    @property
    def end_s(self) -> float:
        """The latest time at which the job ends."""
        return self.started_s + self.request.time_limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Numbers by which the scheduler weighs one job against another."""

    age_points_per_hour: float = 1.0  # what a job's priority gains by waiting: nothing waits for ever
    share_points: float = 20.0  # what a user loses who used all of the cluster lately
    weights: Mapping[str, float] = field(default_factory=dict)  # of users; 1 where none is given
    quotas: Mapping[str, Resources] = field(default_factory=dict)  # most that a user may hold at a time
    settle_s: float = 300.0  # between two changes of a job's size that nobody urgent asked for
    idle_s: float = 30.0  # for which resources must be idle before a running job grows into them
    share_margin: float = (
        0.1  # of the cluster: a smaller difference between users is no reason to move workers
    )
    preempt_tries: int = 16  # jobs, best first, for which others are asked to give way in one decision
    preempt: bool = True
    shrink: bool = True  # False: jobs give way by pausing alone
    backfill: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Everything a decision depends on."""

    now_s: float
    hosts: tuple[HostCapacity, ...]
    waiting: tuple[JobRequest, ...] = ()
    placed: tuple[Placed, ...] = ()
    usage: Mapping[str, float] = field(
        default_factory=dict
    )  # of users: decayed share of the cluster's past, 0 to 1
    changed_s: float = -NO_LIMIT_S  # when a job last came or ended
    policy: Policy = Policy()


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job on these hosts."""

    job: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Grow:
    """Add workers to a running elastic job."""

    job: int
    added: Allocation


@dataclass(frozen=True, slots=True)
class Shrink:
    """Take workers from a running elastic job, which goes on with the others, so that another job can start."""

    job: int
    removed: Allocation
    for_job: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause a running job at a checkpoint, and queue it again, so that another job can start."""

    job: int
    for_job: int


Action = Start | Grow | Shrink | Pause
Why = Literal[
    "held", "dependency", "not yet", "never fits", "quota", "resources", "reserved", "giving way", "priority"
]


def size(allocation: Allocation) -> int:
    """Return the workers of an allocation."""
    return sum(count for _, count in allocation)


def merged(one: Allocation, other: Allocation, sign: int = 1) -> Allocation:
    """Return the sum of two allocations, or their difference with a `sign` of -1."""
    counts = dict(one)
    for host, count in other:
        counts[host] = counts.get(host, 0) + sign * count
    return tuple(sorted((host, count) for host, count in counts.items() if count > 0))
