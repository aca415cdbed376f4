"""Views: who takes part in the run, from one agreed change of membership to the next.

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
    agent: str  # the voter that watches it
    host: str
    slot: int
    address: str
    store_port: int
    heal_port: int
    weight: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Member:
        return cls(**data)


@dataclass(frozen=True)
class View:
    """One membership: its members in the order of their ranks, and the agents that decide what follows."""

    number: int
    members: tuple[Member, ...]
    voters: tuple[str, ...]  # the first breaks ties
    cause: str = ""

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def agents(self) -> frozenset[str]:
        """Those whose workers take part; without all of them no step completes."""
        return frozenset(member.agent for member in self.members)

    def rank_of(self, worker: str) -> int | None:
        """The worker's rank; None if it is no member."""
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
    """The order of ranks after a change; the order in which `now` comes does not matter.

    Who stays keeps its place among those who stay. The members of one host stay together, because
    reductions follow hosts: newcomers stand behind the others of their host, new hosts behind all.
    A host that keeps none of its members counts as new, so that rank 0 has the state if anyone has.
    """
    coming = {member.worker: member for member in sorted(now, key=lambda m: (m.host, m.slot, m.worker))}
    staying = [coming.pop(member.worker) for member in before if member.worker in coming]
    by_host: dict[str, list[Member]] = {}
    for member in [*staying, *coming.values()]:
        by_host.setdefault(member.host, []).append(member)
    return tuple(member for members in by_host.values() for member in members)
