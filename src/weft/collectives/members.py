"""The members of a group: who shares a host with whom, and which part of a tensor each rank is responsible for. Pure.

Two ranks share a host if they share its memory: that is decided for each group from what its members say of themselves,
never from LOCAL_WORLD_SIZE, which knows nothing of sub-groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from weft.collectives.modes.mode import even_bounds

Stretch = tuple[int, int]  # the first element and the one after the last


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """One rank of a group, as it describes itself to the others."""

    rank: int  # in the group
    host: str  # the same for ranks that share memory, different for all others
    name: str  # what people call the host
    pid: int
    address: str
    rack: str = ""  # of the host, by any name; and its aisle
    aisle: str = ""
    wire: str = "fp32"  # what it was told to use between hosts

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.name}"


@dataclass(frozen=True)
class Layout:
    """The ranks of a group by host; hosts in the order of their first rank.

    A tensor has as many slices as the fullest host has ranks. Every slice has an owner on every host; the owners of a
    slice reduce it across hosts. On a host with fewer ranks than slices, a rank owns several.
    """

    hosts: tuple[tuple[int, ...], ...]

    @cached_property
    def size(self) -> int:
        return sum(map(len, self.hosts))

    @cached_property
    def slices(self) -> int:
        return max(map(len, self.hosts))

    def host_of(self, rank: int) -> int:
        return next(index for index, ranks in enumerate(self.hosts) if rank in ranks)

    def locals_of(self, rank: int) -> tuple[int, ...]:
        """The ranks on the same host, itself among them."""
        return self.hosts[self.host_of(rank)]

    def owner(self, host: int, piece: int) -> int:
        ranks = self.hosts[host]
        return ranks[piece * len(ranks) // self.slices]

    def owners(self, piece: int) -> tuple[int, ...]:
        """The ranks that reduce a slice across hosts."""
        return tuple(self.owner(host, piece) for host in range(len(self.hosts)))

    def owned(self, rank: int) -> tuple[int, ...]:
        """The slices a rank owns."""
        host = self.host_of(rank)
        return tuple(piece for piece in range(self.slices) if self.owner(host, piece) == rank)

    def local_bounds(self, rank: int, count: int) -> tuple[Stretch, ...]:
        """Return, for each rank on the host of `rank`, the stretch of `count` elements made of the slices it owns."""
        return _local_bounds(self, self.host_of(rank), even_bounds(count, self.slices))


# Worked out once for each size: a tensor goes in many chunks of the same size, and training repeats itself.


@lru_cache(maxsize=1024)
def _local_bounds(layout: Layout, host: int, slices: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """Return, for each rank of a host, the stretch that its slices make, where these are the bounds of all slices."""
    owned = [layout.owned(rank) for rank in layout.hosts[host]]
    return tuple((slices[pieces[0]][0], slices[pieces[-1]][1]) for pieces in owned)


@dataclass(frozen=True)
class Arrangement:
    """The parts of all ranks in an order in which what a rank is responsible for is one stretch.

    A rank's part belongs to the first slice it owns; slices follow each other, and in a slice the parts of its hosts.
    """

    places: tuple[Stretch, ...]  # by rank: where its part lies
    parts: tuple[
        tuple[Stretch, ...], ...
    ]  # by slice: for each host what it brings; nothing if it has no rank there

    @property
    def count(self) -> int:
        return self.parts[-1][-1][1]

    @cached_property
    def slices(self) -> tuple[Stretch, ...]:
        return tuple((parts[0][0], parts[-1][1]) for parts in self.parts)

    def parts_of(self, piece: int) -> tuple[Stretch, ...]:
        """The parts in a slice, counted from where the slice begins."""
        start = self.slices[piece][0]
        return tuple((first - start, last - start) for first, last in self.parts[piece])

    def local_bounds(self, layout: Layout, rank: int) -> tuple[Stretch, ...]:
        """Return, for each rank on the host of `rank`, the stretch made of the slices it owns."""
        return _local_bounds(layout, layout.host_of(rank), self.slices)


@lru_cache(maxsize=256)
def arrange(layout: Layout, counts: tuple[int, ...]) -> Arrangement:
    """Order parts of these sizes, one for each rank."""
    places: list[Stretch] = [(0, 0)] * len(counts)
    slices = []
    end = 0
    for piece in range(layout.slices):
        parts = []
        for owner in layout.owners(piece):
            begin = end
            if layout.owned(owner)[0] == piece:
                end += counts[owner]
                places[owner] = begin, end
            parts.append((begin, end))
        slices.append(tuple(parts))
    return Arrangement(tuple(places), tuple(slices))


def in_turns(bounds: Sequence[Stretch], turns: int) -> tuple[tuple[Stretch, ...], ...]:
    """The stretches in so many turns: in each, a piece of every one of them."""
    cut = [
        [(first + begin, first + end) for begin, end in even_bounds(last - first, turns)]
        for first, last in bounds
    ]
    return tuple(zip(*cut, strict=True))


def layout_of(members: Sequence[GroupMember]) -> Layout:
    hosts: dict[str, list[int]] = {}
    for member in sorted(members, key=lambda member: member.rank):
        hosts.setdefault(member.host, []).append(member.rank)
    return Layout(tuple(map(tuple, hosts.values())))
