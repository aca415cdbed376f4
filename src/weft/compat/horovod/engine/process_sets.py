"""Process sets: parts of the world that have operations of their own."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from weft.compat.horovod.engine.engine import HorovodEngine
from weft.compat.horovod.engine.operations import KnownReduction
from weft.compat.horovod.negotiation.messages import GLOBAL_SET


class ProcessSet:
    """Some ranks of the world. It has a number once it is registered, by `init` or `add_process_set`."""

    mpi_comm = None  # a set is made of ranks, never of a communicator

    def __init__(self, ranks: Iterable[int]) -> None:
        self.process_set_id: int | None = None
        self.ranks: list[int] | None = _sorted_ranks(ranks)
        self.engine: HorovodEngine | None = None  # of the world that it is registered in
        # What was reduced before: a single tensor by its name, a group by its operation and name.
        self.known_reductions: dict[str | tuple[str, str | None] | None, KnownReduction] = {}

    def attach(self, engine: HorovodEngine | None, number: int | None) -> None:
        """Make this the set of a number in a world; None: it is registered no more."""
        self.engine, self.process_set_id = engine, number
        self.known_reductions = {}
        if engine is not None and number is not None:
            self.ranks = list(engine.sets[number])

    def _members(self) -> Sequence[int] | None:
        engine, number = self.engine, self.process_set_id
        return engine.sets.get(number) if engine is not None and number is not None else None

    def size(self) -> int | None:
        """Return how many ranks the set has; None if it is not registered."""
        members = self._members()
        return len(members) if members is not None else None

    def rank(self) -> int | None:
        """Return this process's number in the set; None if the set is not registered or has not this process."""
        members, engine = self._members(), self.engine
        if members is None or engine is None or engine.rank not in members:
            return None
        return members.index(engine.rank)

    def included(self) -> bool | None:
        """Return whether this process is in the set; None if the set is not registered."""
        members, engine = self._members(), self.engine
        return engine.rank in members if members is not None and engine is not None else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessSet):
            return NotImplemented
        return self.process_set_id == other.process_set_id and self.ranks == other.ranks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _sorted_ranks(given: Iterable[int]) -> list[int]:
    try:
        return sorted(map(operator.index, given))
    except TypeError:
        raise ValueError(
            f"a process set must be made of ranks, got {given!r}; a communicator of MPI is not served"
        ) from None


class GlobalProcessSet(ProcessSet):
    """All ranks: there in every world, under the number 0."""

    def __init__(self) -> None:
        super().__init__([])
        self.process_set_id = GLOBAL_SET

    def attach(self, engine: HorovodEngine | None, number: int | None) -> None:
        super().attach(engine, GLOBAL_SET)


global_process_set: ProcessSet = GlobalProcessSet()
