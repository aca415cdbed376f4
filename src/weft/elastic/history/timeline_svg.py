"""A picture of a run: a lane for each worker over time, and below it each change with its phases. Plain SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from weft.elastic.history.timeline import ABRUPT, Event, MembershipChange, standstills
from weft.elastic.history.timeline_table import describe, format_clock, format_s, summarise

_LEFT, _WIDTH, _RIGHT = 190, 720, 90  # names, the area inside the axes, room for figures
_LANE, _GAP = 16, 6
# Told apart also by people who see few colours (Okabe and Ito).
_STEPPING, _STILL, _PLANNED_MARK, _SAVED = "#a6cee3", "#d55e00", "#555555", "#000000"
_PHASES = {
    "going on until agreed": "#dddddd",
    "detected to agreed": "#e69f00",
    "groups made": "#0072b2",
    "state healed": "#cc79a7",
    "first step": "#009e73",
}
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.title { font-size: 15px; font-weight: 600 } .small { font-size: 11px; fill: #555 }
.grid { stroke: #e4e4e4 } .axis { stroke: #888; fill: none }
"""


@dataclass(frozen=True)
class Scale:
    """Seconds to pixels; what lies outside is drawn at the edge."""

    least: float
    most: float

    def __call__(self, value: float) -> float:
        share = (value - self.least) / max(self.most - self.least, 1e-9)
        return round(_LEFT + min(1.0, max(0.0, share)) * _WIDTH, 1)

    def ticks(self) -> Iterator[float]:
        """Round distances from the start, at most ten."""
        length = self.most - self.least
        step = next((step for step in _STEPS if length / step <= 10), length / 10)
        yield from (number * step for number in range(int(length / step + 1e-6) + 1))


_STEPS = [m * 10.0**e for e in range(-3, 1) for m in (1, 2, 5)] + [
    15,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
]
_STEPS += [14400.0, 43200.0, 86400.0]


def render_svg(found: Sequence[MembershipChange], events: Sequence[Event], *, title: str) -> str:
    """The whole picture."""
    times = [event.t for event in events] or [0.0, 1.0]
    across = Scale(min(times), max(times))
    legend = _legend()
    top = 108
    lanes = list(_lanes(found, events, across, top))
    bottom = top + len(_workers(found)) * (_LANE + _GAP)
    below = bottom + 84
    bars = list(_bars(found, below))
    width, height = _LEFT + _WIDTH + _RIGHT, below + len(found) * (_LANE + _GAP) + 44
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"',
            f' viewBox="0 0 {width} {height}">',
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" fill="white"/>',
            _text(16, 24, title, cls="title"),
            _text(16, 44, str(summarise(found, events))),
            *legend,
            *lanes,
            *bars,
            "</svg>\n",
        ]
    )


def _legend() -> Iterator[str]:
    lane = {"worker, stepping": _STEPPING, "standing still": _STILL}
    x = 16.0
    for name, colour in {**lane, **_PHASES}.items():
        yield f'<rect x="{x}" y="56" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 17, 66, name, cls="small")
        x += 32 + 6.1 * len(name)
    yield f'<path d="M{x} 66l5 -9l5 9z" fill="{_SAVED}"/>'
    yield _text(x + 15, 66, "checkpoint", cls="small")


def _workers(found: Sequence[MembershipChange]) -> list[str]:
    """By name, with numbers as numbers: who took a place stands below who had it."""
    names = {worker for change in found for worker in change.after}
    return sorted(
        names, key=lambda name: [(int(part), "") if part.isdigit() else (-1, part) for part in _parts(name)]
    )


def _parts(name: str) -> list[str]:
    return re.findall(r"[0-9]+|[^0-9]+", name)


def _lanes(found: Sequence[MembershipChange], events: Sequence[Event], x: Scale, top: float) -> Iterator[str]:
    workers = _workers(found)
    bottom = top + len(workers) * (_LANE + _GAP)
    for tick in x.ticks():
        level = x(x.least + tick)
        yield f'<line class="grid" x1="{level}" y1="{top - 4}" x2="{level}" y2="{bottom}"/>'
        yield _text(level, bottom + 18, format_clock(tick), anchor="middle", cls="small")
    still = [(found[0].detected_t, found[0].stepped_t), *standstills(found)] if found else []
    for number, worker in enumerate(workers):
        y = top + number * (_LANE + _GAP)
        yield _text(_LEFT - 8, y + 12, worker, anchor="end")
        for since, until in spans_of(worker, found, x.most):
            told = f"{worker}: {format_clock(since - x.least)} to {format_clock(until - x.least)}"
            yield _rect(x(since), y, x(until), _STEPPING, told)
            for begin, end in still:
                begin, end = max(begin, since), min(x.most if end is None else end, until)
                if begin < end:
                    yield _rect(x(begin), y, x(end), _STILL, f"standing still for {format_s(end - begin)}")
    yield from _marks(found, x, top, bottom)
    yield f'<path class="axis" d="M{_LEFT} {top - 4}V{bottom}H{_LEFT + _WIDTH}"/>'
    for event in events:
        if event.event == "saved":
            told = f"checkpoint of step {event.about.get('step')}"
            yield f'<path d="M{x(event.t) - 5} {bottom}l5 -9l5 9z" fill="{_SAVED}"><title>{escape(told)}</title></path>'


def spans_of(worker: str, found: Sequence[MembershipChange], end: float) -> Iterator[tuple[float, float]]:
    """When a worker was a member: from the agreement on its first view until the change that left it out."""
    since: float | None = None
    for change in found:
        if worker in change.after and since is None:
            since = change.detected_t + change.agreed_s
        elif worker not in change.after and since is not None:
            yield since, max(since, change.still_t)
            since = None
    if since is not None:
        yield since, end


def _marks(found: Sequence[MembershipChange], x: Scale, top: float, bottom: float) -> Iterator[str]:
    """A line for each change; its name stands above it, where there is room."""
    ends = [0.0, 0.0]  # of the names in two rows
    for change in found:
        level, colour = x(change.detected_t), _STILL if change.kind in ABRUPT else _PLANNED_MARK
        told = f"view {change.view}, {describe(change)}"
        yield (
            f'<line stroke="{colour}" stroke-dasharray="3 2" x1="{level}" y1="{top - 8}" x2="{level}" y2="{bottom}">'
            f"<title>{escape(told)}</title></line>"
        )
        name = f"{change.view} {change.kind}"
        row = next((row for row in (0, 1) if ends[row] + 6 < level), None)
        if row is not None:
            ends[row] = level + 6.1 * len(name)
            yield _text(level, top - 12 - 13 * row, name, cls="small")


def _bars(found: Sequence[MembershipChange], top: float) -> Iterator[str]:
    """Each change from its detection to its first step, on one scale; a longer start is cut off."""
    lengths = [length for change in found[1:] for length in (_length(change),) if length > 0]
    x = Scale(0.0, max(lengths or [_length(change) for change in found] or [1.0]))
    bottom = top + len(found) * (_LANE + _GAP)
    yield _text(16, top - 16, "Each change, from its detection to the first step", cls="title")
    for tick in x.ticks():
        yield f'<line class="grid" x1="{x(tick)}" y1="{top - 4}" x2="{x(tick)}" y2="{bottom}"/>'
        yield _text(x(tick), bottom + 18, format_s(tick), anchor="middle", cls="small")
    for number, change in enumerate(found):
        y = top + number * (_LANE + _GAP)
        who = "" if change.kind == "start" else ", ".join(change.who)
        name = f"{change.view} {change.kind} {who}".strip()
        short = name if len(name) <= 26 else name[:25] + "…"
        yield _text(_LEFT - 8, y + 12, short, anchor="end", title=describe(change))
        for phase, since, until in phases(change):
            yield _rect(
                x(since), y, x(until), _PHASES[phase], f"{phase}: {format_s(until - since)}", least=0.0
            )
        took = format_s(_length(change)) if change.stepped_s is not None else "gave way"
        if change.stepped_s is None and change is found[-1]:
            took = "no step"
        cut = "▸ " if _length(change) > x.most else ""
        yield _text(x(_length(change)) + 6, y + 12, cut + took)
    yield f'<path class="axis" d="M{_LEFT} {top - 4}V{bottom}H{_LEFT + _WIDTH}"/>'


def phases(change: MembershipChange) -> Iterator[tuple[str, float, float]]:
    """(name, from, to), in seconds from the detection. What came after the first step held nobody up."""
    first = "detected to agreed" if change.kind in ABRUPT else "going on until agreed"
    ends = (change.agreed_s, change.grouped_s, change.healed_s, change.stepped_s)
    names = (first, "groups made", "state healed", "first step")
    since = 0.0
    for name, until in zip(names, ends, strict=True):
        if until is None or until <= since or until > _length(change):
            continue
        yield name, since, until
        since = until


def _length(change: MembershipChange) -> float:
    known = (change.agreed_s, change.grouped_s, change.healed_s)
    return change.stepped_s if change.stepped_s is not None else max(s for s in known if s is not None)


def _rect(left: float, y: float, right: float, colour: str, told: str, *, least: float = 2.0) -> str:
    """Wide enough to be seen, however short."""
    width = round(max(least, right - left), 1)
    return (
        f'<rect x="{left}" y="{y}" width="{width}" height="{_LANE}" fill="{colour}">'
        f"<title>{escape(told)}</title></rect>"
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", cls: str | None = None, title: str | None = None
) -> str:
    look = f' class="{cls}"' if cls else ""
    more = f"<title>{escape(title)}</title>" if title else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{look}>{escape(text)}{more}</text>'
