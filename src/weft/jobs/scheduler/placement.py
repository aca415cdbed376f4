"""The choice of hosts for the workers of one job: whole dimensions first, and the tightest fit that serves.

One host is better than two, one rack better than two, and equal shares better than unequal ones, since the collectives
between workers are fastest there. Among equals the fullest place is taken, which leaves whole hosts to those who need
them.
"""

from __future__ import annotations

import numpy as np

from weft.jobs.scheduler.capacity import FreeCapacity, HostTable, IntArray
from weft.jobs.scheduler.model import Allocation, Demand


def place(free: FreeCapacity, demand: Demand, workers: int) -> Allocation | None:
    """Return hosts for all workers of a job, or None if there is no room for them."""
    return place_in(free.table, free.slots(demand), workers)


def place_in(table: HostTable, slots: IntArray, workers: int) -> Allocation | None:
    """Return hosts for workers, given how many of them fit on each host."""
    one = _tightest(slots, workers)
    if one is not None:
        return ((table.hosts[one].name, workers),)
    if int(slots.sum()) < workers:
        return None
    chosen = _in_one_rack(table, slots, workers) or _on_hosts(slots, np.flatnonzero(slots), workers)
    return _named(table, chosen)


def extend(free: FreeCapacity, demand: Demand, held: Allocation, workers: int) -> Allocation:
    """Return up to so many more workers for a job, on the hosts and racks it has first."""
    table, slots = free.table, free.slots(demand)
    mine = {table.number[name] for name, _ in held if name in table.number}
    racks = {int(table.rack[host]) for host in mine}
    order = sorted(
        (int(host) for host in np.flatnonzero(slots)),
        key=lambda host: (host not in mine, int(table.rack[host]) not in racks, -int(slots[host]), host),
    )
    return _named(table, _fill(slots, order, workers))


def _tightest(slots: IntArray, workers: int) -> int | None:
    """Return the host with the least room that takes all workers."""
    enough = np.flatnonzero(slots >= workers)
    return int(enough[slots[enough].argmin()]) if len(enough) else None


def _in_one_rack(table: HostTable, slots: IntArray, workers: int) -> dict[int, int] | None:
    if table.racks < 2:
        return None
    rooms = np.bincount(table.rack, weights=slots, minlength=table.racks).astype(np.int64)
    rack = _tightest(rooms, workers)
    return (
        None
        if rack is None
        else _on_hosts(slots, np.flatnonzero((table.rack == rack) & (slots > 0)), workers)
    )


def _on_hosts(slots: IntArray, hosts: IntArray, workers: int) -> dict[int, int]:
    """Return the workers of each host: equal shares on as few hosts as possible, else the largest rooms first."""
    order = hosts[np.argsort(slots[hosts], kind="stable")]
    rooms = slots[order]
    for count in range(2, min(len(order), workers) + 1):
        share, rest = divmod(workers, count)
        if not rest and rooms[-count] >= share:
            first = int(np.searchsorted(rooms, share))  # the fullest host that has room for a share
            return {int(host): share for host in order[first : first + count]}
    return _fill(slots, [int(host) for host in reversed(order)], workers)


def _fill(slots: IntArray, order: list[int], workers: int) -> dict[int, int]:
    chosen: dict[int, int] = {}
    for host in order:
        if workers <= 0:
            break
        chosen[host] = min(int(slots[host]), workers)
        workers -= chosen[host]
    return chosen


def _named(table: HostTable, chosen: dict[int, int]) -> Allocation:
    return tuple(sorted((table.hosts[host].name, count) for host, count in chosen.items() if count))
