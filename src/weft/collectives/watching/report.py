"""The communication report: each rank's figures, and the table made of them. Pure.

What a table gives for a dimension is that of the average rank. Who comes late is found by comparing, call by call,
when each rank began.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from weft.collectives.watching.spans import CALL, CALLER, DIMENSIONS, Span, common, length, under_way, waiting
from weft.text import format_seconds, format_size, plural

ARRIVALS = 256  # calls of which a rank tells when it began
_OTHER = "other"  # calls that go through no dimension


@dataclass(frozen=True, kw_only=True)
class Share:
    """The communication of one rank in one dimension."""

    seconds: float = 0.0
    calls: int = 0
    nbytes: int = 0
    modes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures that one rank sends of some steps."""

    rank: int
    host: str
    last_step: int
    steps: int
    seconds: float
    dimensions: Mapping[str, Share] = field(default_factory=dict)
    under_way_s: float = 0.0
    overlapped_s: float = 0.0
    arrivals: Mapping[str, int] = field(default_factory=dict)  # call: nanoseconds, by the clock of rank 0
    verified: int = 0
    worst_error: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Figures:
        shares = {
            name: Share(**{**share, "modes": tuple(share["modes"])})
            for name, share in data["dimensions"].items()
        }
        return cls(**{**data, "dimensions": shares})

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


def shares_of(spans: Sequence[Span]) -> dict[str, Share]:
    """Return the shares by dimension; calls that went through none are at the end."""
    rows = {span.row for span in spans} - {CALL, CALLER}
    by_row = {row: [span for span in spans if span.row == row] for row in (*DIMENSIONS, *sorted(rows))}
    by_row[_OTHER] = [span for span in spans if span.row == CALL and span.mode]
    return {row: _share(found) for row, found in by_row.items() if found}


def _share(spans: Sequence[Span]) -> Share:
    modes = Counter[str]()
    for span in spans:
        modes[span.mode] += span.ended - span.began
    return Share(
        seconds=length((span.began, span.ended) for span in spans) / 1e9,
        calls=len(spans),
        nbytes=sum(span.nbytes for span in spans),
        modes=tuple(mode for mode, _ in modes.most_common()),
    )


def overlap_of(spans: Sequence[Span]) -> tuple[float, float]:
    """Seconds in which something was under way, and those of them in which nobody waited for it."""
    busy = under_way(span for span in spans if span.row == CALL)
    return length(busy) / 1e9, (length(busy) - common(busy, waiting(spans))) / 1e9


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """The lateness of a rank: how far it is behind the first one."""

    rank: int
    host: str
    late_s: float  # on average
    spread_s: float
    last: float  # share of the calls in which nobody came later
    calls: int


def jitters(everyone: Sequence[Figures]) -> list[Jitter]:
    """Return the lateness of each rank over the calls that all of them tell of; the latest rank first."""
    shared = set(everyone[0].arrivals) if everyone else set()
    for figures in everyone[1:]:
        shared &= figures.arrivals.keys()
    if len(everyone) < 2 or not shared:
        return []
    first = {call: min(figures.arrivals[call] for figures in everyone) for call in shared}
    last = {call: max(figures.arrivals[call] for figures in everyone) for call in shared}
    found = []
    for figures in everyone:
        late = [(figures.arrivals[call] - first[call]) / 1e9 for call in shared]
        found.append(
            Jitter(
                rank=figures.rank,
                host=figures.host,
                late_s=statistics.fmean(late),
                spread_s=statistics.pstdev(late),
                last=sum(figures.arrivals[call] == last[call] for call in shared) / len(shared),
                calls=len(shared),
            )
        )
    return sorted(found, key=lambda jitter: -jitter.late_s)


@dataclass(frozen=True, kw_only=True)
class CommunicationReport:
    """The report that rank 0 prints."""

    first_step: int
    last_step: int
    ranks: int  # that gave figures
    world: int
    hosts: int
    step_s: float
    dimensions: Mapping[
        str, Share
    ]  # in one step of the average rank, but for the calls and bytes of all steps
    overlap: float | None  # share of the communication; None where there was none
    latest: Jitter | None
    most_varying: Jitter | None
    verified: int
    worst_error: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def report_of(everyone: Sequence[Figures], world: int) -> CommunicationReport:
    """Return the report of all ranks' figures."""
    one = everyone[0]
    found = jitters(everyone)
    busy = sum(figures.under_way_s for figures in everyone)
    names = dict.fromkeys(name for figures in everyone for name in figures.dimensions)
    return CommunicationReport(
        first_step=one.last_step - one.steps + 1,
        last_step=one.last_step,
        ranks=len(everyone),
        world=world,
        hosts=len({figures.host for figures in everyone}),
        step_s=statistics.fmean(figures.seconds / figures.steps for figures in everyone),
        dimensions={name: _average(everyone, name) for name in names},
        overlap=sum(figures.overlapped_s for figures in everyone) / busy if busy else None,
        latest=found[0] if found else None,
        most_varying=max(found, key=lambda jitter: jitter.spread_s) if found else None,
        verified=max(figures.verified for figures in everyone),
        worst_error=max(figures.worst_error for figures in everyone),
    )


def _average(everyone: Sequence[Figures], name: str) -> Share:
    shares = [figures.dimensions.get(name, Share()) for figures in everyone]
    return Share(
        seconds=statistics.fmean(
            share.seconds / figures.steps for share, figures in zip(shares, everyone, strict=True)
        ),
        calls=round(statistics.fmean(share.calls for share in shares)),
        nbytes=round(statistics.fmean(share.nbytes for share in shares)),
        modes=tuple(dict.fromkeys(mode for share in shares for mode in share.modes)),
    )


def render_report(report: CommunicationReport) -> str:
    """Return the report as a table."""
    step = format_seconds(report.step_s)
    head = f"steps {report.first_step}-{report.last_step}: {step} a step, {plural(report.world, 'rank')}"
    lines = [f"weft: {head} on {plural(report.hosts, 'host')}"]
    rows = [("dimension", "mode", "calls", "bytes", "time a step", "of the step")]
    for name, share in report.dimensions.items():
        part = f"{share.seconds / report.step_s:.1%}" if report.step_s else ""
        size = format_size(share.nbytes, trimmed=True)
        rows.append(
            (name, ", ".join(share.modes), f"{share.calls}", size, format_seconds(share.seconds), part)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("weft:   " + "  ".join(cells).rstrip())
    return "\n".join([*lines, *(f"weft:   {line}" for line in _remarks(report))])


def _remarks(report: CommunicationReport) -> list[str]:
    lines = []
    if report.overlap is not None:
        lines.append(f"{report.overlap:.0%} of the communication went on while the caller computed")
    if (late := report.latest) is not None:
        lines.append(
            f"latest: rank {late.rank} on {late.host}, {format_seconds(late.late_s)} after the first (+/- "
            f"{format_seconds(late.spread_s)}), last in {late.last:.0%} of {late.calls} calls"
        )
    varying = report.most_varying
    if varying is not None and late is not None and varying.rank != late.rank:
        lines.append(
            f"varies most: rank {varying.rank} on {varying.host}, +/- {format_seconds(varying.spread_s)}"
        )
    if report.ranks < report.world:
        lines.append(f"{report.world - report.ranks} of {report.world} ranks gave no figures in time")
    if report.verified:
        lines.append(verified_line(report.verified, report.worst_error))
    return lines


def verified_line(count: int, worst: float) -> str:
    return f"{plural(count, 'all_reduce')} verified, largest relative error {worst:.2g}"
