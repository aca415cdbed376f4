"""Spans of positions, [start, stop): how they tile what they should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

Span = tuple[int, int]


def tile(spans: Iterable[Span], low: int, high: int) -> tuple[list[Span], list[Span]]:
    """Where spans leave [low, high) uncovered, and where they cover anything more than once."""
    turns: Counter[int] = Counter()
    for start, stop in spans:
        turns[start] += 1
        turns[stop] -= 1
    turns[low] += 0
    turns[high] += 0
    missing: list[Span] = []
    twice: list[Span] = []
    depth, places = 0, sorted(turns)
    for start, stop in pairwise(places):
        depth += turns[start]
        if depth == 0 and low <= start < high:
            missing.append((start, stop))
        elif depth > 1:
            twice.append((start, stop))
    return _joined(missing), _joined(twice)


def _joined(spans: Iterable[Span]) -> list[Span]:
    whole: list[Span] = []
    for start, stop in spans:
        if whole and whole[-1][1] == start:
            whole[-1] = (whole[-1][0], stop)
        else:
            whole.append((start, stop))
    return whole


def size_of(spans: Iterable[Span]) -> int:
    return sum(stop - start for start, stop in spans)


def format_span(span: Span) -> str:
    """`768-831`, or `12`: the last is meant, too."""
    return f"{span[0]}-{span[1] - 1}" if span[1] - span[0] > 1 else str(span[0])
