"""Clusters and jobs for tests of the scheduler: small ones by hand, random ones by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from weft.jobs.scheduler.model import (
    ClusterState,
    Demand,
    HostCapacity,
    JobRequest,
    Placed,
    Policy,
    Resources,
)

GIB = 1 << 30


def host(name: str, cpus: float = 8, gpus: float = 4, rack: str = "r0", **more: Any) -> HostCapacity:
    return HostCapacity(name, Resources(cpus, 64 * GIB, gpus), rack, **more)


def hosts(count: int, **more: Any) -> tuple[HostCapacity, ...]:
    return tuple(host(f"h{index}", **more) for index in range(count))


def demand(cpus: float = 1, gpus: float = 1, memory_bytes: float = GIB, **more: Any) -> Demand:
    return Demand(Resources(cpus, memory_bytes, gpus), **more)


def job(number: int, workers: int = 1, most: int | None = None, **more: Any) -> JobRequest:
    more.setdefault("user", "ann")
    more.setdefault("demand", demand())
    more.setdefault("submitted_s", float(number))
    return JobRequest(id=number, min_workers=workers, max_workers=most or workers, **more)


def running(request: JobRequest, *allocation: tuple[str, int], **more: Any) -> Placed:
    more.setdefault("started_s", 0.0)
    return Placed(request=request, allocation=tuple(sorted(allocation)), **more)


def cluster(**given: Any) -> ClusterState:
    given.setdefault("hosts", hosts(2))
    given.setdefault("now_s", 1000.0)
    return ClusterState(**given)


@st.composite
def requests(draw: st.DrawFn, number: int) -> JobRequest:
    fewest = draw(st.integers(1, 6))
    return JobRequest(
        id=number,
        user=draw(st.sampled_from(["ann", "bob", "eve"])),
        demand=Demand(
            Resources(
                draw(st.sampled_from([0.5, 1, 3])),
                draw(st.sampled_from([1, 9])) * GIB,
                draw(st.integers(0, 2)),
            ),
            labels=draw(st.sampled_from([frozenset(), frozenset({"fast"})])),
        ),
        submitted_s=float(draw(st.integers(0, 900))),
        min_workers=fewest,
        max_workers=fewest + draw(st.integers(0, 4)),
        priority=draw(st.sampled_from([10, 50, 90])),
        time_limit_s=draw(st.sampled_from([60.0, 3600.0, float("inf")])),
        preemptible=draw(st.booleans()),
        held=draw(st.sampled_from([False, False, False, True])),
        not_before_s=draw(st.sampled_from([0.0, 0.0, 5000.0])),
    )


@st.composite
def waiting_clusters(draw: st.DrawFn) -> ClusterState:
    """A cluster with nothing running and jobs that wait."""
    return ClusterState(
        now_s=1000.0,
        hosts=tuple(
            HostCapacity(
                f"h{index}",
                Resources(
                    draw(st.sampled_from([2, 4, 8])),
                    draw(st.sampled_from([8, 64])) * GIB,
                    draw(st.integers(0, 4)),
                ),
                draw(st.sampled_from(["r0", "r1"])),
                draw(st.sampled_from([frozenset(), frozenset({"fast"})])),
                open=draw(st.sampled_from([True, True, True, False])),
            )
            for index in range(draw(st.integers(1, 5)))
        ),
        waiting=tuple(draw(requests(number)) for number in range(draw(st.integers(0, 12)))),
        usage=draw(st.sampled_from([{}, {"ann": 0.6, "bob": 0.1}])),
        policy=draw(st.sampled_from([Policy(), Policy(backfill=False), Policy(shrink=False)])),
    )
