"""The timeline as a table: a row for each change, and a line that sums up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weft.elastic.history.timeline import Event, MembershipChange, ended, standstills
from weft.text import TableLayout, format_share, format_size, plural, table_layout

_HEADS = ("view", "at", "change", "workers", "agreed", "grouped", "healed", "first step", "pause")
# Room for rows that are not known yet when the first is printed.
_USUAL = (
    "view",
    "0:00:00.0",
    "death a/1.0: killed by SIGKILL",
    "8 -> 7",
    "agreed",
    "grouped",
    "320 (44.7 MB)",
)


@dataclass(frozen=True, kw_only=True)
class TimelineSummary:
    """A run in a few figures."""

    changes: int  # the start apart
    lasted_s: float
    still_s: float  # of that, when nobody stepped because of a change
    longest_s: float
    still_now: bool
    workers: int  # in the last view
    saved: int
    finished: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        changed = plural(self.changes, "change") if self.changes else "no change"
        parts = [f"{changed} in {format_clock(self.lasted_s)}"]
        if self.changes:
            share = format_share(self.still_s, self.lasted_s)
            parts.append(
                f"stood still {format_s(self.still_s)} ({share}), longest {format_s(self.longest_s)}"
            )
        if self.saved:
            parts.append(plural(self.saved, "checkpoint"))
        if self.finished:
            parts.append(f"finished with {plural(self.workers, 'worker')}")
        else:
            parts.append(f"{plural(self.workers, 'worker')} in the last view, no end noted")
        if self.still_now and not self.finished:
            parts.append("no step since the last change")
        return "; ".join(parts)


def summarise(found: Sequence[MembershipChange], events: Sequence[Event]) -> TimelineSummary:
    start, end = (min(e.t for e in events), max(e.t for e in events)) if events else (0.0, 0.0)
    spans = standstills(found)
    lengths = [max(0.0, (end if until is None else until) - since) for since, until in spans]
    return TimelineSummary(
        changes=max(0, len(found) - 1),
        lasted_s=end - start,
        still_s=sum(lengths),
        longest_s=max(lengths, default=0.0),
        still_now=bool(spans) and spans[-1][1] is None,
        workers=len(found[-1].after) if found else 0,
        # Every host may note the same checkpoint.
        saved=len({e.about.get("step") for e in events if e.event == "saved"}),
        finished=ended(events),
    )


def render_table(found: Sequence[MembershipChange], start: float) -> str:
    """All rows; `start` is the time `at` counts from."""
    rows = [_HEADS, *(_cells(change, start) for change in found)]
    layout = _layout(rows)
    return "\n".join([*map(layout.line, rows), NOTE])


NOTE = "agreed, grouped, healed, first step: ms after the detection; pause: ms in which nobody could step"


def stream_rows(found: Iterable[MembershipChange], start: float, *, heads: bool) -> list[str]:
    """Rows that are printed as they come, below heads printed before."""
    usual = _USUAL + _HEADS[len(_USUAL) :]
    rows = [_cells(change, start) for change in found]
    return list(map(_layout([_HEADS, usual]).line, [_HEADS, *rows] if heads else rows))


def _layout(rows: Sequence[Sequence[str]]) -> TableLayout:
    return table_layout(rows, {"change", "workers"})


def _cells(change: MembershipChange, start: float) -> tuple[str, ...]:
    healed = _ms(change.healed_s)
    if change.healed_bytes:
        healed += f" ({format_size(change.healed_bytes, decimal=True, trimmed=True)})"
    return (
        str(change.view),
        format_clock(change.detected_t - start),
        describe(change),
        f"{len(change.before)} -> {len(change.after)}",
        _ms(change.agreed_s),
        _ms(change.grouped_s),
        healed,
        _ms(change.stepped_s),
        _ms(change.pause_s if change.before else None),  # before the start nobody stepped
    )


def describe(change: MembershipChange) -> str:
    """`death a/1.0: killed by SIGKILL`."""
    if change.kind == "start":
        return "start"
    who = ", ".join(change.who[:3]) + (f" and {len(change.who) - 3} more" if len(change.who) > 3 else "")
    what = f"{change.kind} {who}".rstrip()
    return f"{what}: {change.cause}" if change.cause and change.cause != change.kind else what


def format_clock(seconds: float) -> str:
    """`0:01:05.2`, hours first."""
    tenths = round(max(0.0, seconds) * 10)
    minutes, rest = divmod(tenths, 600)
    return f"{minutes // 60}:{minutes % 60:02}:{rest // 10:02}.{rest % 10}"


def format_s(seconds: float) -> str:
    """`312 ms`, `4.2 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f}"
