"""Stretches of time in which something was done, and what can be worked out from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

CALL, CALLER = "call", "caller"  # the rows that are no dimensions: what the group did, and what its user did
HOST, HOSTS, RACKS, AISLES = "host", "between hosts", "between racks", "between aisles"
DIMENSIONS = (HOST, HOSTS, RACKS, AISLES)  # innermost first

Interval = tuple[int, int]  # nanoseconds


class Span(NamedTuple):
    """One thing that one rank did; times are nanoseconds of its own clock."""

    row: str
    name: str
    began: int
    ended: int
    nbytes: int = 0
    dtype: str = ""
    mode: str = ""
    group: str = ""
    number: int = 0  # of the call in its group; the same on all ranks
    asked: int = 0  # when a call was made, which may be before it began
    future: bool = False  # whoever made the call waits for its future, where we cannot look


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same stretches without overlaps, in order."""
    whole: list[Interval] = []
    for began, ended in sorted(intervals):
        if whole and began <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(whole[-1][1], ended))
        else:
            whole.append((began, ended))
    return whole


def length(intervals: Iterable[Interval]) -> int:
    """Return how long something was going on, however often at once."""
    return sum(ended - began for began, ended in merged(intervals))


def common(left: Sequence[Interval], right: Sequence[Interval]) -> int:
    """Return how long both kinds of stretches were going on at once."""
    return length(left) + length(right) - length([*left, *right])


def under_way(calls: Iterable[Span]) -> list[Interval]:
    """Return the stretches in which there was communication to be done."""
    return merged((call.asked, call.ended) for call in calls)


def waiting(spans: Sequence[Span]) -> list[Interval]:
    """Return the stretches in which the caller could do nothing but wait.

    DDP waits for futures, in C++, where nobody can look. It makes its last call when the last gradient is there, and
    has nothing else to do from then on: so the stretch from the last call until nothing is under way counts.
    """
    seen = [(span.began, span.ended) for span in spans if span.row == CALLER]
    calls = [span for span in spans if span.row == CALL and span.future]
    for began, ended in under_way(calls):
        last = max(call.asked for call in calls if began <= call.asked <= ended)
        seen.append((last, ended))
    return merged(seen)


def lanes(spans: Sequence[Span]) -> list[int]:
    """Return, for each span a lane in which it overlaps no other."""
    free: list[int] = []  # when each lane is free again
    chosen = [0] * len(spans)
    for index in sorted(range(len(spans)), key=lambda index: spans[index].began):
        span = spans[index]
        lane = next((lane for lane, ended in enumerate(free) if ended <= span.began), len(free))
        free[lane : lane + 1] = [span.ended]
        chosen[index] = lane
    return chosen
