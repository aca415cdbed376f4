"""The histograms of a level: which are added up from rows, and which are a parent's less a sibling's."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LevelNode:
    """A node that waits: its rows here, and over all workers, and whether it may be split."""

    node: int
    start: int
    stop: int
    rows: int
    open: bool


@dataclass(frozen=True)
class Family:
    """Two children, or the root alone, and the slot of their parent's histogram; -1 where it was not kept."""

    members: tuple[LevelNode, ...]
    slot: int = -1


@dataclass(frozen=True)
class LevelPlan:
    """The plan of one level; slots are places in a pool of histograms."""

    nodes: tuple[int, ...]  # that may be split
    slots: tuple[int, ...]  # of each of them
    builds: tuple[tuple[int, int, int], ...]  # (start, stop, slot): add up these rows
    subtracts: tuple[tuple[int, int], ...]  # (slot, other): the first becomes the first less the other
    size: int  # how many slots there must be


def plan_level(families: list[Family], kept: Set[int] = frozenset()) -> LevelPlan:
    """The larger child takes its parent's histogram less its sibling's, which has fewer rows to add up.

    Slots in `kept` hold histograms of other nodes that wait.
    """
    taken = {family.slot for family in families} | kept
    free = (slot for slot in range(2 * len(families) + len(taken) + 1) if slot not in taken)
    where: dict[int, int] = {}
    builds, subtracts = [], []
    for family in families:
        small, *rest = sorted(family.members, key=lambda member: member.rows)
        large = rest[0] if rest else None
        if family.slot >= 0 and large is not None and large.open:
            slot = next(free)
            builds.append((small.start, small.stop, slot))
            subtracts.append((family.slot, slot))
            where[small.node], where[large.node] = slot, family.slot
            continue
        for member in family.members:
            if member.open:
                where[member.node] = next(free)
                builds.append((member.start, member.stop, where[member.node]))
    members = [member for family in families for member in family.members if member.open]
    nodes = tuple(member.node for member in members)
    slots = tuple(where[node] for node in nodes)
    used = [*taken, *where.values(), -1]
    return LevelPlan(nodes, slots, tuple(builds), tuple(subtracts), max(used) + 1)


def in_parts(families: list[Family], most: int) -> list[list[Family]]:
    """The families of a level in parts whose histograms fit in so many slots; a parent's are kept for one part only."""
    if 3 * len(families) <= most:
        return [families]
    each = max(1, most // 3)
    alone = [replace(family, slot=-1) for family in families]
    return [alone[start : start + each] for start in range(0, len(alone), each)]


def in_batches(sizes: list[int], most: int) -> list[slice]:
    """Neighbours whose sizes add up to at most `most`, as slices; one that is larger is alone."""
    batches, start, total = [], 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > most:
            batches.append(slice(start, place))
            start, total = place, 0
        total += size
    return [*batches, slice(start, len(sizes))] if sizes else []
