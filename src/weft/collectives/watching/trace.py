"""A timeline of all ranks in the Trace Event Format, for ui.perfetto.dev and chrome://tracing. Pure.

A process is a host; each rank has a row for its calls, one for its caller, and one for each dimension, with more rows
where things overlap: a timeline draws only what is nested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from weft.collectives.watching.spans import CALL, CALLER, DIMENSIONS, Span, lanes
from weft.version import __version__

_ROWS = (CALL, CALLER, *DIMENSIONS)
_LANES = 16  # rows of one kind


@dataclass(frozen=True, kw_only=True)
class TracePart:
    """The spans that one rank has seen."""

    rank: int
    host: str
    spans: Sequence[Span]
    offset_ns: int = 0  # to be added to its clock to have that of rank 0
    error_ns: int = 0  # by which that may be wrong
    dropped: int = 0  # the oldest ones, for which there was no room

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "spans": [list(span) for span in self.spans]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TracePart:
        return cls(**{**data, "spans": [Span(*span) for span in data["spans"]]})


def merge(parts: Sequence[TracePart], world: int) -> dict[str, Any]:
    """Return the parts of all ranks as one timeline."""
    parts = [_on_one_clock(part) for part in sorted(parts, key=lambda part: part.rank)]
    begin = min((span.began for part in parts for span in part.spans), default=0)
    hosts = list(dict.fromkeys(part.host for part in parts))
    arrived = _last_to_arrive(parts)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": host}}
        for number, host in enumerate(hosts, 1)
    ]
    for part in parts:
        events += _events(part, hosts.index(part.host) + 1, begin, arrived)
    about = {
        "weft": __version__,
        "ranks": len(parts),
        "missing_ranks": sorted(set(range(world)) - {part.rank for part in parts}),
        "dropped": {str(part.rank): part.dropped for part in parts if part.dropped},
        "clock_error_us": {part.host: part.error_ns / 1e3 for part in parts},
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _on_one_clock(part: TracePart) -> TracePart:
    shift = part.offset_ns
    spans = [
        span._replace(
            began=span.began + shift, ended=span.ended + shift, asked=span.asked and span.asked + shift
        )
        for span in part.spans
    ]
    return TracePart(**{**vars(part), "spans": spans, "offset_ns": 0})


def _last_to_arrive(parts: Sequence[TracePart]) -> dict[tuple[str, int], int]:
    """Return, for each call, when the last of its ranks began it."""
    last: dict[tuple[str, int], int] = {}
    for part in parts:
        for span in part.spans:
            if span.row == CALL and span.number:
                key = (span.group, span.number)
                last[key] = max(last.get(key, 0), span.began)
    return last


def _events(
    part: TracePart, process: int, begin: int, arrived: dict[tuple[str, int], int]
) -> Iterator[dict[str, Any]]:
    rows = [*_ROWS, *sorted({span.row for span in part.spans} - set(_ROWS))]
    for order, row in enumerate(rows):
        spans = [span for span in part.spans if span.row == row]
        first = (part.rank * len(rows) + order) * _LANES + 1
        chosen = [lane % _LANES for lane in lanes(spans)]
        for lane in sorted(set(chosen)):
            name = f"rank {part.rank}" if row == CALL else f"rank {part.rank} {row}"
            name += f" ({lane + 1})" if lane else ""
            place = {"ph": "M", "pid": process, "tid": first + lane}
            yield place | {"name": "thread_name", "args": {"name": name}}
            yield place | {"name": "thread_sort_index", "args": {"sort_index": first + lane}}
        for span, lane in zip(spans, chosen, strict=True):
            place = {"pid": process, "tid": first + lane}
            yield place | _event(span, begin)
            latest = min(arrived.get((span.group, span.number), 0), span.ended)
            if row == CALL and span.number and latest > span.began:
                yield place | _stretch("waiting for peers", span.began, latest, begin)


def _event(span: Span, begin: int) -> dict[str, Any]:
    args = {
        "bytes": span.nbytes,
        "dtype": span.dtype,
        "mode": span.mode,
        "call": span.number,
        "group": span.group,
        "queued_us": (span.began - span.asked) / 1e3 if span.asked else 0,
    }
    event = _stretch(span.name, span.began, span.ended, begin)
    return event | {"cat": span.row, "args": {name: value for name, value in args.items() if value}}


def _stretch(name: str, began: int, ended: int, begin: int) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": (began - begin) / 1e3, "dur": (ended - began) / 1e3}
