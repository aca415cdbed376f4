"""The machines a step is predicted for: hosts, workers, and what their links and memories carry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.errors import UsageError

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
USUAL_EFFICIENCY = 0.87  # of a card's rate, by our collectives over TCP: 1.15 of the cards' bound
USUAL_MEMORY_BPS = 4e9  # bytes/s that workers of a host exchange through shared memory
USUAL_FIXED_S = 1e-3  # of one collective between hosts: threads, meeting, first bytes
USUAL_COPY_BPS = 6e9  # bytes/s that a worker copies on a CPU, while the others of its host do
USUAL_LAYER_S = 3e-4  # that FSDP2 takes for a layer on a CPU, forward or backward


@dataclass(frozen=True)
class CollectiveSpeed:
    """The measured speed of a collective: a fixed time, and a rate for the bytes that pass each host's card."""

    fixed_s: float
    card_bps: float  # bytes/s each way

    def seconds(self, card_bytes: float) -> float:
        return self.fixed_s + card_bytes / self.card_bps


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """Hosts that are alike, and how fast bytes move between and within them.

    Rates are bytes a second, each way at once. The slowest link counts: a collective waits for it.
    """

    hosts: tuple[str, ...]
    workers_per_host: int = 1
    card_bps: float = 0.0  # of a host's network card; 0 for a single host
    round_trip_s: float = 2e-4
    efficiency: float = USUAL_EFFICIENCY  # of the card's rate that collectives reach
    fixed_s: float = USUAL_FIXED_S  # of one collective between hosts
    hop_s: float = 0.0  # more for each host beyond two
    memory_bps: float = USUAL_MEMORY_BPS  # of exchanges within a host
    host_fixed_s: float = 5e-5  # of one exchange within a host
    # At which a worker copies layers that it gathers and scatters, and gradients to buckets; 0: beside compute.
    shard_copy_bps: float = 0.0
    bucket_copy_bps: float = 0.0
    shard_fixed_s: float = (
        0.0  # of a layer that FSDP2 gathers, in a pass forward or backward: hooks and views
    )
    worker_cores: float = 0.0  # that a worker gets when all of its host want them; 0: not known
    transport_cores: float = 0.0  # processor time of a worker's transport, by the time that the network works
    copy_bps: float = (
        0.0  # between a device and main memory; 0: the device is the CPU, nothing can be swapped
    )
    device_bytes: int = 0  # memory that a worker may use; 0: not known, nothing is refused for it
    host_bytes: int = 0  # main memory for what is swapped, for each worker; 0: not known
    racks: int = 1
    uplink_bps: float = 0.0  # of a rack; 0: as fast as all its cards together
    jitter: float = 0.0  # standard deviation of a worker's compute, as a share of it
    # By collective, and by collective and wire: `all_reduce`, `all_reduce bf16`.
    measured: Mapping[str, CollectiveSpeed] = field(default_factory=dict)
    source: str = "given"  # where the figures come from, for people

    def __post_init__(self) -> None:
        if not self.hosts or self.workers_per_host < 1:
            raise UsageError("a plan must have hosts with workers, got none; use -H host1,host2")
        if len(self.hosts) > 1 and not self.card_bps > 0:
            raise UsageError(
                "the links between hosts must be measured, got none that was; run weft check -H "
                f"{','.join(self.hosts[:3])} first, or give --link 1Gb"
            )
        if self.racks < 1 or len(self.hosts) % self.racks:
            raise UsageError(
                f"racks must hold equally many hosts, got {self.racks} racks for {len(self.hosts)} hosts; "
                "mend --racks"
            )

    @property
    def host_count(self) -> int:
        return len(self.hosts)

    @property
    def world(self) -> int:
        return len(self.hosts) * self.workers_per_host


def on_cpus(cluster: ClusterFacts) -> ClusterFacts:
    """Return the cluster with what a CPU usually takes for copies and layers, where it was not measured."""
    return replace(
        cluster,
        shard_copy_bps=cluster.shard_copy_bps or USUAL_COPY_BPS,
        bucket_copy_bps=cluster.bucket_copy_bps or USUAL_COPY_BPS,
        shard_fixed_s=cluster.shard_fixed_s or USUAL_LAYER_S,
    )


def slowest(speeds: Mapping[tuple[str, str], float]) -> float:
    """Return the rate of the slowest link, which a ring over all hosts waits for."""
    return min(speeds.values(), default=0.0)


def fit_speed(times: Mapping[int, float]) -> CollectiveSpeed:
    """Fit fixed time and rate to measured times by bytes on the card: least squares of relative errors.

    t = a + b / rate; each equation is divided by its t, so that a small message counts as much as a large one.
    """
    if not times:
        raise UsageError("a collective must be measured at one size at least, got none; run weft bench")
    if len(times) == 1:
        ((size, seconds),) = times.items()
        return CollectiveSpeed(0.0, size / seconds)
    rows = [(1 / seconds, size / seconds) for size, seconds in times.items()]
    aa, ab, bb = (sum(left * right for left, right in pairs) for pairs in _products(rows))
    a1, b1 = sum(row[0] for row in rows), sum(row[1] for row in rows)
    determinant = aa * bb - ab * ab
    fixed = (a1 * bb - b1 * ab) / determinant if determinant else 0.0
    if fixed < 0:
        fixed = 0.0
    slope = (b1 - fixed * ab) / bb
    if slope <= 0:  # times do not grow with size: all of it is fixed
        return CollectiveSpeed(sum(times.values()) / len(times), float("inf"))
    return CollectiveSpeed(fixed, 1 / slope)


def _products(
    rows: list[tuple[float, float]],
) -> tuple[list[tuple[float, float]], list[tuple[float, float]], list[tuple[float, float]]]:
    return (
        [(a, a) for a, _ in rows],
        [(a, b) for a, b in rows],
        [(b, b) for _, b in rows],
    )
