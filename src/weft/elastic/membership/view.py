"""Views: the members of the run between two agreed changes.

A view is a value. Agents agree on it (`weft.elastic.membership.council`), workers form their groups from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Member:
    """One worker of a view."""

    worker: str  # "host/slot.incarnation": unique over the run, never used again
    agent: str  # of its host
    host: str
    slot: int
    address: str
    store_port: int  # where the members of a view meet, if this is the first of them
    heal_port: int  # where others fetch the training state
    weight: float = 1.0  # its share of a batch, relative to the others

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Member:
        return cls(**data)


@dataclass(frozen=True)
class View:
    """One membership: the members in the order of their ranks, and the agents that decide on the next view."""

    number: int
    members: tuple[Member, ...]
    voters: tuple[str, ...]  # agents; the first breaks ties
    cause: str = ""

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def agents(self) -> frozenset[str]:
        """The agents whose workers take part; without all of them no step completes."""
        return frozenset(member.agent for member in self.members)

    def rank_of(self, worker: str) -> int | None:
        """Return the worker's rank; None if it is no member."""
        return next((rank for rank, member in enumerate(self.members) if member.worker == worker), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "members": [member.to_json() for member in self.members],
            "voters": list(self.voters),
            "cause": self.cause,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> View:
        return cls(
            number=data["number"],
            members=tuple(Member.from_json(member) for member in data["members"]),
            voters=tuple(data["voters"]),
            cause=data["cause"],
        )


def order_members(before: Iterable[Member], now: Iterable[Member]) -> tuple[Member, ...]:
    """Return the members in the order of their ranks after a change; the order of `now` does not matter.

    Members that stay keep their order. The members of one host stay together, because reductions follow hosts:
    newcomers come after the others of their host, new hosts after all. A host that keeps none of its members counts
    as new, so that rank 0 has the training state if any member has.
    """
    coming = {member.worker: member for member in sorted(now, key=lambda m: (m.host, m.slot, m.worker))}
    staying = [coming.pop(member.worker) for member in before if member.worker in coming]
    by_host: dict[str, list[Member]] = {}
    for member in [*staying, *coming.values()]:
        by_host.setdefault(member.host, []).append(member)
    return tuple(member for members in by_host.values() for member in members)
