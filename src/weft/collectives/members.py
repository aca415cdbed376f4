"""Who shares a host with whom, and which part of a tensor each rank is responsible for. Pure.

Two ranks share a host if they share its memory: that is decided for each group from what its members say of themselves,
never from LOCAL_WORLD_SIZE, which knows nothing of sub-groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.collectives.mode import even_bounds


@dataclass(frozen=True, kw_only=True)
class Member:
    """One rank of a group, as it describes itself to the others."""

    rank: int  # in the group
    host: str  # the same for ranks that share memory, different for all others
    name: str  # what people call the host
    pid: int
    address: str

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.name}"


@dataclass(frozen=True)
class Layout:
    """The ranks of a group by host; hosts in the order of their first rank.

    A tensor has as many slices as the fullest host has ranks. Every slice has an owner on every host; the owners of a
    slice reduce it across hosts. On a host with fewer ranks than slices, a rank owns several.
    """

    hosts: tuple[tuple[int, ...], ...]

    @property
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

    def local_bounds(self, rank: int, count: int) -> tuple[tuple[int, int], ...]:
        """For each rank on the host of `rank`, the stretch of `count` elements made of the slices it owns."""
        slices = even_bounds(count, self.slices)
        bounds = []
        for local in self.locals_of(rank):
            owned = self.owned(local)
            bounds.append((slices[owned[0]][0], slices[owned[-1]][1]))
        return tuple(bounds)


def layout_of(members: Sequence[Member]) -> Layout:
    hosts: dict[str, list[int]] = {}
    for member in sorted(members, key=lambda member: member.rank):
        hosts.setdefault(member.host, []).append(member.rank)
    return Layout(tuple(map(tuple, hosts.values())))
