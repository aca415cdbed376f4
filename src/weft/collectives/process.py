"""State of this process that outlives its groups of ranks.

A group that is being made has to know the world that met before it: torch gives it a store and numbers, and nothing
that could carry the rest. So there is one object for all of it, `process`, and it is the only such state here besides
MPI's (`modes/messages/mpi_world.py`), of which a process has one by its own rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.collectives.members import GroupMember
    from weft.collectives.watching.recorder import SpanRecorder


class ProcessState:
    """The world that met last, and what was recorded of all groups."""

    def __init__(self) -> None:
        self.world: dict[int, GroupMember] = {}  # by rank: the members of the world that met last
        self.host = ""  # of this process, as the members of that world name it
        self.origin: Any = None  # the store of that world, kept alive
        self.lives: set[bytes] = set()  # identities of the groups that this process has been in
        self.recorder: SpanRecorder | None = None  # of all watched groups
        self.reports_by_world = False  # a group of all ranks is there that reports for the others


process = ProcessState()
