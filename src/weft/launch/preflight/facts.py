"""The facts that a preflight finds out (`Facts`) and its judgements on them (`CheckFinding`), as data.

A finding is about one host, about a pair (from, to), or, with no host, about all of them. A failure would break
the run; a warning would slow it or puzzle its user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from weft.launch.address import Reach, card_used
from weft.launch.agent.survey import Survey
from weft.launch.preflight.cardrule import CardRule
from weft.launch.preflight.speeds import MeasuredLink
from weft.topology.host import NetworkCard

Status = Literal["ok", "warn", "fail"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """One check's result for one host or one pair."""

    name: str
    hosts: tuple[str, ...] = ()
    status: Status = "ok"
    got: str
    fix: str = ""


@dataclass(frozen=True)
class ClockOffset:
    """The offset of a host's clock from ours, and how wrong that may be: half a round trip."""

    ahead_s: float
    error_s: float


@dataclass(frozen=True)
class ConnectAttempt:
    """One host's try to connect to another."""

    source: str
    target: str
    address: str
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that was found out. A host that could not be reached is in `troubles` and in nothing else."""

    hosts: tuple[str, ...]
    leader: str
    troubles: Mapping[str, str] = field(default_factory=dict)
    surveys: Mapping[str, Survey] = field(default_factory=dict)
    tried: tuple[str, ...] = ()  # addresses of the leader
    reached: Mapping[str, tuple[Reach, ...]] = field(default_factory=dict)  # by all but the leader
    address: str | None = None  # the leader's, if all others can reach one
    rules: tuple[CardRule, ...] = ()
    knocks: tuple[ConnectAttempt, ...] = ()
    links: tuple[MeasuredLink, ...] = ()
    clocks: Mapping[str, ClockOffset] = field(default_factory=dict)
    missing: Mapping[str, tuple[str, ...]] | None = None  # files; None: not looked for
    port: int | None = None  # None: any will do
    port_free: bool = True
    allow_uneven: bool = False

    def route(self, host: str) -> Reach | None:
        """Return how a host came to the leader's address."""
        return next(
            (r for r in self.reached.get(host, ()) if r.address == self.address and not r.error), None
        )

    def card(self, host: str) -> NetworkCard | None:
        """The card a host will use."""
        route = self.route(host)
        source = self.address if host == self.leader else route.source if route else None
        return card_used(self.surveys[host].host, source)

    def translated(self, host: str) -> bool:
        """Return whether the leader sees another address than the host has: something between rewrites them."""
        route = self.route(host)
        return route is not None and route.source != route.seen_as


def most_common(values: Iterable[T], default: T) -> T:
    """Return what most hosts have; where as many have another, what the first of them has."""
    counts = Counter(values).most_common(1)
    return counts[0][0] if counts else default
