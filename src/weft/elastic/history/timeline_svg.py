"""A picture of a run: a lane for each worker over time, and below it each change with its phases. Plain SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from weft import svg
from weft.elastic.history.timeline import ABRUPT, Event, MembershipChange, standstills
from weft.elastic.history.timeline_table import describe, format_clock, format_s, summarise
from weft.svg import Legend, Panel, Scale, Tick

_MARGIN, _LEFT, _WIDTH, _RIGHT = 16, 190, 720, 90  # pixels: edge, names, the area inside the axes, figures
_LANE, _GAP = 16, 6  # pixels: the height of a bar, and the space below it
_LANES_TOP = 128  # pixels: below the title, the summary, the legend and two rows of names
_STEPPING, _STILL = "#7fb8da", "#d55e00"
_PLANNED_MARK = "#8c8c8c"
_PHASES = {
    "going on until agreed": ".quiet",
    "detected to agreed": "#e69f00",
    "groups made": "#0072b2",
    "state healed": "#cc79a7",
    "first step": "#009e73",
}
# Seconds between two labels of an axis.
_TICKS_S = (
    *(factor * 10.0**power for power in range(-3, 1) for factor in (1, 2, 5)),
    *(15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0),
)


def render_svg(found: Sequence[MembershipChange], events: Sequence[Event], *, title: str) -> str:
    """Draw the whole picture: title, summary, lanes, changes."""
    times = [event.t for event in events] or [0.0, 1.0]
    workers = _workers(found)
    lanes = Panel(_LEFT, _LANES_TOP, _WIDTH, max(1, len(workers)) * (_LANE + _GAP))
    changes = Panel(_LEFT, lanes.bottom + 116, _WIDTH, max(1, len(found)) * (_LANE + _GAP))
    time = lanes.across(min(times), max(times))
    return svg.document(
        _LEFT + _WIDTH + _RIGHT,
        changes.bottom + 54,
        [
            svg.text(_MARGIN, 26, title, cls="title"),
            svg.text(_MARGIN, 46, str(summarise(found, events))),
            *_lanes_legend(),
            *_lanes(found, events, workers, lanes, time),
            *_bars(found, changes),
        ],
    )


def _lanes_legend() -> Iterator[str]:
    yield from Legend((("stepping", _STEPPING), ("standing still", _STILL))).draw(_MARGIN, 72)
    yield svg.triangle(222, 72, ".ink")
    yield svg.text(232, 72, "checkpoint", cls="small")
    for x, name, colour in ((314, "fault", _STILL), (370, "planned change", _PLANNED_MARK)):
        yield svg.dashes(x, 62, 74, colour)
        yield svg.text(x + 8, 72, name, cls="small")


def _workers(found: Sequence[MembershipChange]) -> list[str]:
    """All workers by name, with numbers as numbers: who took a place stands below who had it."""
    names = {worker for change in found for worker in change.after}
    return sorted(
        names, key=lambda name: [(int(part), "") if part.isdigit() else (-1, part) for part in _parts(name)]
    )


def _parts(name: str) -> list[str]:
    return re.findall(r"[0-9]+|[^0-9]+", name)


def _lanes(
    found: Sequence[MembershipChange],
    events: Sequence[Event],
    workers: Sequence[str],
    panel: Panel,
    time: Scale,
) -> Iterator[str]:
    ticks = svg.round_ticks(time.most - time.least, _TICKS_S)
    whole = all(tick == int(tick) for tick in ticks)
    labels = [format_clock(tick).removesuffix(".0" if whole else "") for tick in ticks]
    yield from panel.x_axis(
        time,
        (Tick(time.least + tick, label) for tick, label in zip(ticks, labels, strict=True)),
        "time since the start (h:mm:ss)",
    )
    still = [(found[0].detected_t, found[0].stepped_t), *standstills(found)] if found else []
    for number, worker in enumerate(workers):
        y = panel.top + number * (_LANE + _GAP)
        yield _name(y, worker, worker)
        for since, until in spans_of(worker, found, time.most):
            text = f"{worker}: {format_clock(since - time.least)} to {format_clock(until - time.least)}"
            yield svg.bar(time(since), y, time(until), _LANE, _STEPPING, tooltip=text, least=2.0)
            for begin, end in still:
                begin, end = max(begin, since), min(time.most if end is None else end, until)
                if begin < end:
                    text = f"standing still for {format_s(end - begin)}"
                    yield svg.bar(time(begin), y, time(end), _LANE, _STILL, tooltip=text, least=2.0)
    yield from _marks(found, panel, time)
    yield panel.frame()
    for event in events:
        if event.event == "saved":
            text = f"checkpoint of step {event.about.get('step')}"
            yield svg.triangle(time(event.t), panel.bottom, ".ink", tooltip=text)


def _name(y: float, name: str, tooltip: str) -> str:
    """The name of a lane or of a change, left of the axis."""
    return svg.text(_LEFT - 8, y + 12, svg.fit(name, _LEFT - _MARGIN - 8), anchor="end", tooltip=tooltip)


def spans_of(worker: str, found: Sequence[MembershipChange], end: float) -> Iterator[tuple[float, float]]:
    """Yield the spans in which a worker was a member, from the agreement on a view to the change that left it out."""
    since: float | None = None
    for change in found:
        if worker in change.after and since is None:
            since = change.detected_t + change.agreed_s
        elif worker not in change.after and since is not None:
            yield since, max(since, change.still_t)
            since = None
    if since is not None:
        yield since, end


def _marks(found: Sequence[MembershipChange], panel: Panel, time: Scale) -> Iterator[str]:
    """A line for each change; its name stands above it, where there is room in one of two rows."""
    ends = [0.0, 0.0]  # pixels: where the last name of each row ends
    for change in found:
        x, colour = time(change.detected_t), _STILL if change.kind in ABRUPT else _PLANNED_MARK
        text = f"view {change.view}, {describe(change)}"
        yield svg.dashes(x, panel.top - 8, panel.bottom, colour, tooltip=text)
        name = f"{change.view} {change.kind}"
        row = next((row for row in (0, 1) if ends[row] + 6 < x), None)
        if row is not None:
            ends[row] = x + svg.text_width(name, svg.SMALL_PX)
            yield svg.text(x, panel.top - 12 - 13 * row, name, cls="small")


def _bars(found: Sequence[MembershipChange], panel: Panel) -> Iterator[str]:
    """Yield a bar for each change, from its detection to its first step, on one scale; a longer start is cut."""
    lengths = [length for change in found[1:] for length in (_length(change),) if length > 0]
    time = panel.across(0.0, max(lengths or [_length(change) for change in found] or [1.0]))
    yield svg.text(_MARGIN, panel.top - 44, "Each change, from its detection to the first step", cls="title")
    yield from Legend(tuple(_PHASES.items())).draw(_MARGIN, panel.top - 20)
    ticks = svg.round_ticks(time.most, _TICKS_S)
    yield from panel.x_axis(
        time, (Tick(tick, format_s(tick)) for tick in ticks), "time since the change was detected"
    )
    for number, change in enumerate(found):
        y = panel.top + number * (_LANE + _GAP)
        who = "" if change.kind == "start" else ", ".join(change.who)
        yield _name(y, f"{change.view} {change.kind} {who}".strip(), describe(change))
        for phase, since, until in phases(change):
            text = f"{phase}: {format_s(until - since)}"
            yield svg.bar(time(since), y, time(until), _LANE, _PHASES[phase], tooltip=text)
        cut = "▸ " if _length(change) > time.most else ""
        yield svg.text(time(_length(change)) + 6, y + 12, cut + _took(change, last=change is found[-1]))
    yield panel.frame()


def _took(change: MembershipChange, *, last: bool) -> str:
    """`323 ms`, or why the change has no first step."""
    if change.stepped_s is not None:
        return format_s(_length(change))
    return "no step" if last else "gave way"


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
