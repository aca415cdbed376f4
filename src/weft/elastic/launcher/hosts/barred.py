"""Hosts that are barred from an elastic run because a worker failed there: for good, or for a while that doubles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import UsageError
from weft.topology.hostlist import HostEntry

FOR_GOOD = "forever"


@dataclass(frozen=True)
class BarringRule:
    """The rule for how long a host is barred: `first_s` seconds, doubled at each further failure up to `longest_s`."""

    first_s: float | None = None  # None: for good
    longest_s: float | None = None

    def __post_init__(self) -> None:
        if self.first_s is None:
            return
        longest_s = self.first_s if self.longest_s is None else self.longest_s
        if not (0 < self.first_s <= longest_s < math.inf):
            raise UsageError(
                f"--bar-hosts must be FIRST:LONGEST in seconds with 0 < FIRST <= LONGEST, got {self.first_s:g}:"
                f"{longest_s:g}; write --bar-hosts 10:100, or --bar-hosts {FOR_GOOD}"
            )

    def pause_s(self, failures: int) -> float:
        """Return for how many seconds a host is barred after a number of failures."""
        if self.first_s is None:
            return math.inf
        longest_s = self.first_s if self.longest_s is None else self.longest_s
        return min(longest_s, self.first_s * 2.0 ** min(failures - 1, 64))


def parse_barring(text: str) -> BarringRule:
    """Read a rule: `forever`, `10` or `10:100`."""
    if text == FOR_GOOD:
        return BarringRule()
    first, _, longest = text.partition(":")
    try:
        return BarringRule(float(first), float(longest) if longest else None)
    except ValueError:
        raise UsageError(
            f"--bar-hosts must be {FOR_GOOD} or FIRST:LONGEST in seconds, got {text!r}; write --bar-hosts 10:100"
        ) from None


def hosts_of_failures(event: Mapping[str, Any]) -> list[str]:
    """Return the hosts of the workers that failed, by one event of an agent's journal; none for most events."""
    if event["event"] != "detected" or event["kind"] != "death":
        return []
    return list(dict.fromkeys(worker.partition("/")[0] for worker in event["who"]))


@dataclass
class BarredHosts:
    """The hosts that are barred now. Times are seconds of any clock that only goes on."""

    rule: BarringRule
    _failures: dict[str, int] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def bar(self, host: str, now: float) -> float | None:
        """Bar a host on which a worker failed; return for how many seconds, None if it is barred already."""
        if self.is_barred(host, now):
            return None
        self._failures[host] = self._failures.get(host, 0) + 1
        pause_s = self.rule.pause_s(self._failures[host])
        self._until[host] = now + pause_s
        return pause_s

    def is_barred(self, host: str, now: float) -> bool:
        return now < self._until.get(host, -math.inf)

    def allowed(self, wanted: Iterable[HostEntry], now: float) -> tuple[HostEntry, ...]:
        """Return the hosts that are wanted and not barred; all of them if every one is barred."""
        entries = tuple(wanted)
        return tuple(entry for entry in entries if not self.is_barred(entry.name, now)) or entries


def line_about(host: str, pause_s: float) -> str:
    """Return the line that tells of a host that is barred."""
    how_long = "for good" if pause_s == math.inf else f"for {pause_s:g} s"
    return f"{host} is barred {how_long}: a worker failed there"
