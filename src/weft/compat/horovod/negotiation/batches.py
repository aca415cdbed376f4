"""Batches: requests that were agreed on together before, and travel under one number from then on.

A training step submits the same names again and again. Once the coordinator has decided the same requests together
twice, they have a number as a batch: a rank says it instead of all of theirs, and is told it instead of the executions.
A batch is a short form and nothing else. Where ranks do not say the same one, it is spelled out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from weft.compat.horovod.negotiation.messages import GLOBAL_SET, Execution

BATCHES_KEPT = 256  # later ones are spelled out
CANDIDATES_KEPT = 64  # decided once


@dataclass(slots=True)
class KnownBatch:
    """A batch of the coordinator: its requests' numbers, and the ranks that wait for the others."""

    members: frozenset[int]
    order: tuple[int, ...]  # its members, sorted
    valid: bool = True  # none of its numbers was forgotten
    since: float = 0.0  # when the first of the ranks came
    ranks: list[int] = field(default_factory=list)


def numbers_of(executions: Iterable[Execution]) -> list[int] | None:
    """Return the numbers of executions that could be a batch; None: something about them is new."""
    found: list[int] = []
    for each in executions:
        if each.ops or each.set_id != GLOBAL_SET:
            return None
        found += each.numbers
    return found if len(found) > 1 else None


class CoordinatorBatches:
    """The coordinator's batches."""

    def __init__(self) -> None:
        self._known: list[KnownBatch] = []
        self._ids: dict[frozenset[int], int] = {}
        self._candidates: OrderedDict[frozenset[int], None] = OrderedDict()
        self._waiting: dict[int, KnownBatch] = {}

    def number(self, executions: Sequence[Execution]) -> int:
        """Return the number that executions have together from now on; -1: they have none, or had it before."""
        numbers = numbers_of(executions)
        if numbers is None or len(self._known) >= BATCHES_KEPT:
            return -1
        members = frozenset(numbers)
        if members in self._ids:
            return -1
        if members not in self._candidates:
            self._candidates[members] = None
            if len(self._candidates) > CANDIDATES_KEPT:
                self._candidates.popitem(last=False)
            return -1
        del self._candidates[members]
        made = self._ids[members] = len(self._known)
        self._known.append(KnownBatch(members, tuple(sorted(members))))
        return made

    def members(self, batch: int) -> tuple[int, ...]:
        """Return the numbers of a batch, in an order that is always the same."""
        return self._known[batch].order

    def may_wait(self, batch: int) -> bool:
        """Return whether a rank's batch may wait for the others as it is: nobody speaks of its requests otherwise."""
        known = self._known[batch]
        return known.valid and all(
            other is known or known.members.isdisjoint(other.members) for other in self._waiting.values()
        )

    def wait(self, rank: int, batch: int, now: float) -> int:
        """Note that a rank is ready for a batch; return how many are."""
        known = self._known[batch]
        if not known.ranks:
            known.since = now
            self._waiting[batch] = known
        known.ranks.append(rank)
        return len(known.ranks)

    def done(self, batch: int) -> None:
        """All ranks are ready for a batch."""
        self._waiting.pop(batch).ranks = []

    def forget(self, number: int) -> None:
        """A number means nothing any more, and no batch with it either."""
        for known in self._known:
            if number in known.members:
                known.valid = False
        self._candidates.clear()

    def touching(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[int], float]]:
        """Take out the waiting batches that have one of these numbers: each with its ranks, and since when."""
        wanted = list(numbers)
        for batch, known in list(self._waiting.items()):
            if any(number in known.members for number in wanted):
                yield self._take(batch)

    def waiting_since(self, latest: float) -> Iterator[tuple[int, list[int], float]]:
        """Take out the waiting batches whose first rank came at that time or before."""
        for batch, known in list(self._waiting.items()):
            if known.since <= latest:
                yield self._take(batch)

    def oldest(self) -> float | None:
        """Return since when the longest-waiting batch waits."""
        return min((known.since for known in self._waiting.values()), default=None)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def _take(self, batch: int) -> tuple[int, list[int], float]:
        known = self._waiting.pop(batch)
        ranks, known.ranks = known.ranks, []
        return batch, ranks, known.since


class RankBatches:
    """A rank's side of the coordinator's batches."""

    def __init__(self) -> None:
        self._ids: dict[frozenset[int], int] = {}
        self._executions: dict[int, tuple[Execution, ...]] = {}

    def find(self, numbers: Sequence[int]) -> int | None:
        """Return the number of a batch with these members."""
        return self._ids.get(frozenset(numbers)) if self._ids and len(numbers) > 1 else None

    def learn(self, batch: int, executions: tuple[Execution, ...]) -> None:
        """Take in the number that executions have together."""
        numbers = numbers_of(executions)
        if batch >= 0 and numbers is not None:
            self._ids[frozenset(numbers)] = batch
            self._executions[batch] = executions

    def executions(self, batch: int) -> tuple[Execution, ...]:
        """Return what is carried out for a batch."""
        return self._executions[batch]

    def forget(self, number: int) -> list[int]:
        """Return the batches that a number is in: as it means nothing any more, they do not either."""
        gone = [self._ids.pop(members) for members in [each for each in self._ids if number in each]]
        for batch in gone:
            del self._executions[batch]
        return gone
