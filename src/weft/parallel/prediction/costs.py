"""Costs of one collective on a cluster: seconds, and bytes on each kind of link. Pure.

Of S bytes among H hosts of L workers, each way, in R racks:

    all_reduce                     2 (H - 1) / H S on a card, 2 (L - 1) / L S through the memory of a host
    reduce_scatter, all_gather     half of each
    over an uplink                 2 (R - 1) / R S by racks; as much as on a card by a ring in the order of the racks

Within the host and between hosts a tensor goes in chunks, so the slower of the two counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.way import WIRE_SHARES, Way

Operation = Literal["all_reduce", "reduce_scatter", "all_gather"]
Scope = Literal["world", "across", "host"]  # all workers; one of each host, all at once; those of a host


@dataclass(frozen=True)
class CollectiveCost:
    """Seconds of one collective, and the bytes it puts on each card and uplink, each way."""

    seconds: float
    card_bytes: float = 0.0
    uplink_bytes: float = 0.0


def collective_cost(
    cluster: ClusterFacts, way: Way, operation: Operation, nbytes: float, scope: Scope = "world"
) -> CollectiveCost:
    """Return what a collective of a whole tensor of so many bytes takes; `across`, of the shards of a host together."""
    hosts, local = cluster.host_count, cluster.workers_per_host
    rounds = 2 if operation == "all_reduce" else 1
    host_s = 0.0
    if local > 1 and scope != "across":
        exchanged = rounds * (local - 1) / local * nbytes
        host_s = cluster.host_fixed_s + exchanged / cluster.memory_bps
    if hosts == 1 or scope == "host":
        return CollectiveCost(host_s)
    share = 1.0 if operation == "all_gather" else WIRE_SHARES[way.wire]
    card_bytes = rounds * (hosts - 1) / hosts * nbytes * share
    uplink_bytes = _uplink_bytes(cluster, way, rounds, nbytes * share, card_bytes)
    rate = cluster.card_bps * cluster.efficiency
    fixed = cluster.fixed_s + cluster.hop_s * (hosts - 2)
    measured = cluster.measured.get(f"{operation} {way.wire}") if share < 1 else None
    if (measured := measured or cluster.measured.get(operation)) is not None:
        rate, fixed = measured.card_bps, measured.fixed_s
    network_s = card_bytes / rate
    if cluster.uplink_bps:
        network_s = max(network_s, uplink_bytes / (cluster.uplink_bps * cluster.efficiency))
    return CollectiveCost(fixed + max(network_s, host_s), card_bytes, uplink_bytes)


def _uplink_bytes(cluster: ClusterFacts, way: Way, rounds: int, nbytes: float, card_bytes: float) -> float:
    if cluster.racks == 1:
        return 0.0
    return rounds * (cluster.racks - 1) / cluster.racks * nbytes if way.racks else card_bytes
