"""The reservation of the first job that cannot start: hosts that are kept for it, and when it can have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.jobs.scheduler.capacity import FreeCapacity
from weft.jobs.scheduler.model import Allocation, JobRequest, Placed
from weft.jobs.scheduler.placement import place_in


@dataclass(frozen=True)
class Reservation:
    """Hosts that are kept for one job from `start_s` on; a job that ends before may use them."""

    job: int
    start_s: float  # infinite where a job without a time limit must end first
    allocation: Allocation

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(host for host, _ in self.allocation)


def reserve(job: JobRequest, soon: FreeCapacity, ending: Iterable[Placed]) -> Reservation | None:
    """Return the earliest place for a job when jobs end at their time limits, or None if it fits on no hosts.

    `ending` has the placed jobs in the order of their latest ends; those without a time limit come last, the oldest
    first.
    """
    future = soon.copy()
    demand, needed = job.demand, job.min_workers
    for holder in ending:
        if not holder.workers:
            continue
        future.give(holder.request.demand, holder.staying)
        slots = future.slots(demand)
        if int(slots.sum()) >= needed:
            found = place_in(future.table, slots, needed)
            if found is not None:
                return Reservation(job.id, holder.end_s, found)
    return None
