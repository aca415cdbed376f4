"""Free capacity of all hosts as arrays, and the number of workers of each demand that fit where.

A decision over 1,000 hosts tries thousands of placements. The slots of a demand (how many of its workers each host has
room for) are computed once with NumPy, and afterwards only for the hosts that a placement touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.jobs.scheduler.model import Allocation, Demand, HostCapacity, Resources

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
MOST_SLOTS = 1 << 20  # workers a host has room for when they need nothing
ROUNDING = 1e-6  # workers: fractions of processors and accelerators do not add up exactly


def vector(resources: Resources) -> tuple[float, float, float]:
    """Return resources in the order of the arrays' rows."""
    return resources.cpus, resources.memory_bytes, resources.gpus


class HostTable:
    """The hosts of a cluster, numbered; it does not change while their set does not."""

    def __init__(self, hosts: Sequence[HostCapacity]) -> None:
        self.hosts = tuple(hosts)
        self.number = {host.name: index for index, host in enumerate(hosts)}
        self.total: FloatArray = (
            np.array([vector(host.total) for host in hosts], dtype=float).reshape(-1, 3).T.copy()
        )
        names = {rack: index for index, rack in enumerate(sorted({host.rack for host in hosts}))}
        self.rack: IntArray = np.array([names[host.rack] for host in hosts], dtype=np.int64)
        self.racks = len(names)
        self._open = np.array([host.open for host in hosts], dtype=bool)
        self._usable: dict[Demand, NDArray[np.bool_]] = {}

    @cached_property
    def sums(self) -> tuple[float, float, float]:
        """All that the cluster has, with 1 in place of a kind that it has nothing of."""
        cpus, memory, gpus = (float(x) or 1.0 for x in self.total.sum(axis=1))
        return cpus, memory, gpus

    def usable(self, demand: Demand) -> NDArray[np.bool_]:
        """Return which hosts are open and have the labels that a demand asks for."""
        mask = self._usable.get(demand)
        if mask is None:
            mask = self._open
            if demand.labels or demand.avoid:
                fits = [demand.labels <= h.labels and h.name not in demand.avoid for h in self.hosts]
                mask = mask & np.array(fits, dtype=bool)
            self._usable[demand] = mask
        return mask

    def share(self, demand: Demand, workers: int) -> float:
        """Return the dominant share: the part of the cluster that workers take of what they take most of."""
        return workers * max(
            need / all_ for need, all_ in zip(vector(demand.per_worker), self.sums, strict=True)
        )

    def slots(self, demand: Demand, free: FloatArray) -> IntArray:
        """Return how many workers fit on each host, for free resources given as three rows."""
        room = np.full(len(self.hosts), float(MOST_SLOTS))
        for row, need in enumerate(vector(demand.per_worker)):
            if need > 0:
                np.minimum(room, free[row] / need, out=room)
        room += ROUNDING
        return np.where(self.usable(demand), np.maximum(room, 0.0), 0.0).astype(np.int64)


class FreeCapacity:
    """Resources that nobody holds, while placements are tried; `copy` is cheap."""

    def __init__(self, table: HostTable, free: FloatArray | None = None) -> None:
        self.table = table
        self.free: FloatArray = table.total.copy() if free is None else free
        self._slots: dict[Demand, tuple[IntArray, int]] = {}
        self._rooms: dict[Demand, tuple[int, int]] = {}
        self._touched: list[int] = []  # numbers of hosts whose resources changed, oldest first

    def copy(self) -> FreeCapacity:
        return FreeCapacity(self.table, self.free.copy())

    def slots(self, demand: Demand) -> IntArray:
        """Return how many workers of a demand fit on each host now; the array must not be changed."""
        known = self._slots.get(demand)
        if known is None:
            slots = self.table.slots(demand, self.free)
        else:
            slots, seen = known
            if seen < len(self._touched):
                self._refresh(demand, slots, self._touched[seen:])
        self._slots[demand] = slots, len(self._touched)
        return slots

    def room(self, demand: Demand) -> int:
        """Return how many workers of a demand fit on all hosts together."""
        known = self._rooms.get(demand)
        if known is None or known[1] < len(self._touched):
            known = self._rooms[demand] = int(self.slots(demand).sum()), len(self._touched)
        return known[0]

    def _refresh(self, demand: Demand, slots: IntArray, hosts: Sequence[int]) -> None:
        usable = self.table.usable(demand)
        needs = [(row, need) for row, need in enumerate(vector(demand.per_worker)) if need > 0]
        for host in set(hosts):
            if usable[host]:
                room = min((self.free[row, host] / need for row, need in needs), default=MOST_SLOTS)
                slots[host] = max(0, int(room + ROUNDING))

    def take(self, demand: Demand, allocation: Allocation) -> None:
        """Remove what an allocation holds."""
        self._add(demand, allocation, -1)

    def give(self, demand: Demand, allocation: Allocation) -> None:
        """Add what an allocation held."""
        self._add(demand, allocation, 1)

    def _add(self, demand: Demand, allocation: Allocation, sign: int) -> None:
        cpus, memory, gpus = vector(demand.per_worker)
        for name, workers in allocation:
            host = self.table.number.get(name)
            if host is None:  # the host was removed while the job still ran there
                continue
            column = self.free[:, host]
            column[0] += sign * workers * cpus
            column[1] += sign * workers * memory
            column[2] += sign * workers * gpus
            self._touched.append(host)

    def limit(self, other: FreeCapacity, allocation: Allocation) -> None:
        """Leave no more on the hosts of an allocation than another capacity has there."""
        for name, _ in allocation:
            host = self.table.number[name]
            np.minimum(self.free[:, host], other.free[:, host], out=self.free[:, host])
            self._touched.append(host)

    def close(self, hosts: Iterable[str]) -> None:
        """Leave no room on some hosts."""
        for name in hosts:
            self.free[:, self.table.number[name]] = -1.0
            self._touched.append(self.table.number[name])
