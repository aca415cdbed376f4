"""The peers of one dimension: what the `connect` of a mode is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft.collectives.members import GroupMember
from weft.collectives.modes.wires.wire import TensorHomes

Describe = Callable[[int, str], str]  # a sentence about a peer, from its index and what happened to it


def did_not_come(timeout_s: float) -> str:
    """Return what to say of a peer that has not arrived at a call in time; scripts look for "timed out"."""
    return f"did not come within {timeout_s:g} s (timed out)"


def let_nothing_through(timeout_s: float) -> str:
    """Return what to say of a peer whose connection has been silent for too long; scripts look for "timed out"."""
    return f"let nothing through for {timeout_s:g} s (timed out)"


@dataclass(frozen=True, kw_only=True)
class DimensionPeers:
    """Some members of a group that are to be connected, in the order of their indices."""

    name: str  # of the connection, for keys in the store: the same on all peers, and no other's in the group
    store: Any  # the group's; torch's stubs hide the class
    members: tuple[GroupMember, ...]
    index: int  # of this rank among them
    timeout_s: float
    describe: Describe
    lives: Callable[[int], bool]  # whether a peer's process is there, as far as can be seen from this host
    whole_world: bool = False  # the group has all ranks of the run; programs may have many smaller ones
    short_lived: bool = (
        False  # another group follows at the next change of an elastic run: measuring does not pay
    )
    wire: str = "fp32"  # the form of float32 sums
    homes: TensorHomes = field(default_factory=TensorHomes)  # of the group
    secret: str = field(default="", repr=False)  # of the run; empty where its launcher gave none
    prepared: Any = None  # what the mode's `prepare` gave for the whole group

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Their ranks in the group."""
        return tuple(member.rank for member in self.members)
