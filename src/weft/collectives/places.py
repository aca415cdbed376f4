"""The places of hosts: in which rack, in which aisle; and who meets whom because of it. Pure.

The launcher tells workers (WEFT_RACK, WEFT_AISLE); the dimensions of a mode (b:4x8x2x1) say the same by the order of
the hosts, and win: they were written for this reduction. Hosts of which nothing is known stand in one rack.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod

from weft.collectives.choices import ModeChoice
from weft.collectives.members import Layout
from weft.collectives.settings import LauncherFacts
from weft.topology.dimensions import place_of

HOSTS, RACKS, AISLES = 1, 2, 3  # dimensions, as modes count them: 0 is within a host


@dataclass(frozen=True)
class RackPlace:
    """The rack of a host, by any name, and the aisle it is in."""

    rack: str = ""
    aisle: str = ""

    def within(self, dimension: int) -> Hashable:
        """Return what hosts have in common that meet in a dimension: the rack, the aisle, nothing."""
        return {HOSTS: (self.aisle, self.rack), RACKS: self.aisle}.get(dimension)


def own_place(facts: LauncherFacts, choice: ModeChoice) -> RackPlace:
    """The place of this worker's host, as the worker tells the others."""
    index, hosts = facts.host_index, facts.host_count
    if index is not None and hosts is not None and _describes(choice, hosts):
        return _by_order(index, choice)
    return RackPlace(rack=facts.rack, aisle=facts.aisle)


def places_of(told: Sequence[RackPlace], choice: ModeChoice) -> tuple[RackPlace, ...]:
    """The place of each host of a group, from what it says; by the hosts' order where none knows it."""
    if not any(place.rack for place in told) and _describes(choice, len(told)):
        return tuple(_by_order(index, choice) for index in range(len(told)))
    return tuple(told)


def _describes(choice: ModeChoice, hosts: int) -> bool:
    """Return whether the dimensions of a mode are those of a number of hosts."""
    return choice.dimensions is not None and prod(choice.dimensions[1:]) == hosts


def _by_order(index: int, choice: ModeChoice) -> RackPlace:
    sizes = [*(choice.dimensions or ())[1:], 1, 1]
    rack, aisle = place_of(index, sizes[0], sizes[1])
    return RackPlace(str(rack), str(aisle))


def meetings_of(places: Sequence[RackPlace], dimension: int) -> Layout:
    """Hosts by what they have in common in a dimension: `hosts` of the layout are racks, its ranks are hosts."""
    groups: dict[Hashable, list[int]] = {}
    for index, place in enumerate(places):
        groups.setdefault(place.within(dimension), []).append(index)
    return Layout(tuple(map(tuple, groups.values())))
