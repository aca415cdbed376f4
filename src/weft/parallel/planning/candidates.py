"""All sensible ways to run a step on a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.prediction.way import WIRE_SHARES, Kind, Way

MIB = 1 << 20
BUCKETS = (1 * MIB, 5 * MIB, 25 * MIB, 100 * MIB)
PREFETCHES = (1, 2, 4)
LOCAL_STEPS = (8, 64)
MOST_DIVISIONS = 5  # numbers of passes that are tried

PLAIN_DDP = Way()
PLAIN_FSDP = Way(kind="fsdp", sync_every_pass=True)


def candidates(step: RecordedStep, cluster: ClusterFacts) -> tuple[Way, ...]:
    """Return every way worth a prediction, those that change what is computed among them."""
    found = dict.fromkeys((PLAIN_DDP, PLAIN_FSDP))
    for way in _ways(step, cluster):
        found[way] = None
        if cluster.racks > 1:
            found[replace(way, racks=True)] = None
    return tuple(found)


def _ways(step: RecordedStep, cluster: ClusterFacts) -> Iterator[Way]:
    lighter = cluster.host_count > 1 and step.gradient_type == "float32"
    wires = tuple(WIRE_SHARES) if lighter else ("fp32",)
    for passes, wire in product(divisions(step.passes), wires):
        many = (passes or step.passes) > 1
        for bucket in BUCKETS:
            yield Way(kind="ddp", wire=wire, bucket_bytes=bucket, passes=passes)
        if cluster.world > 1:
            yield Way(kind="zero1", wire=wire, passes=passes)
            yield from _sharded(cluster, Way(wire=wire, passes=passes), many)
        if cluster.copy_bps and cluster.device_bytes:
            for bucket in BUCKETS:
                yield Way(kind="lms", wire=wire, bucket_bytes=bucket, passes=passes)
    if cluster.host_count > 1:
        for steps in LOCAL_STEPS:
            yield Way(kind="ddp", local_steps=steps)


def _sharded(cluster: ClusterFacts, like: Way, many: bool) -> Iterator[Way]:
    kinds: list[Kind] = ["fsdp", "fsdp-keep"]
    if cluster.workers_per_host > 1 and cluster.host_count > 1:
        kinds.append("hsdp")
    for kind, prefetch in product(kinds, PREFETCHES):
        # With one pass both are the same; with many, whole gradients may add up until the last one.
        for every in (True, False) if many else (False,):
            yield replace(like, kind=kind, prefetch=prefetch, sync_every_pass=every)
    if many:
        for prefetch in PREFETCHES:
            yield replace(like, kind="zero2", prefetch=prefetch, sync_every_pass=True)


def divisions(passes: int) -> tuple[int, ...]:
    """Return the numbers of passes to try: as recorded (0), and fewer, larger ones."""
    fewer = [number for number in range(passes - 1, 0, -1) if passes % number == 0]
    if len(fewer) > MOST_DIVISIONS - 1:
        fewer = [*fewer[: MOST_DIVISIONS - 2], fewer[-1]]
    return (0, *fewer)
