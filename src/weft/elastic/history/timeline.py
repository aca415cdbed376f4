"""The timeline of an elastic run: the events its agents noted, and the changes of membership they tell of.

A change is one view that was agreed on. Its phases are told as offsets from the moment somebody noticed why it was
needed. Each moment is by the clock of the host that noted it, and clocks of hosts may differ by milliseconds: what
was a moment later elsewhere can look a moment earlier. No offset is negative, therefore; such a one is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from weft.documents import describe_mismatch
from weft.elastic.history.lines import EVENTS, read_lines, trace_files
from weft.errors import UsageError

# What a detection may be of, the most telling first: of several that led to a change, it is called by the first.
# Those that stop a step at once, and those in which the others go on until the new view is agreed on.
ABRUPT = ("host", "death", "stuck", "broken")
PLANNED = ("start", "leave", "join", "scale", "slow")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of an agent's file; what is not known here is kept in `about`."""

    t: float  # seconds since 1970, by the clock of the host
    host: str
    event: str
    view: int | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return str(self.about.get("kind", "unknown"))

    @property
    def cause(self) -> str:
        return str(self.about.get("cause") or "")

    @property
    def who(self) -> tuple[str, ...]:
        return tuple(self.about.get("who") or ())

    def to_json(self) -> dict[str, Any]:
        return {"t": self.t, "host": self.host, "event": self.event, "view": self.view} | self.about


@dataclass(frozen=True, kw_only=True)
class MembershipChange:
    """One change of membership; offsets are from the detection, None for what did not happen (yet)."""

    view: int
    kind: str
    cause: str
    who: tuple[str, ...]
    detected_t: float
    agreed_s: float
    grouped_s: float | None = None  # of the last worker
    healed_s: float | None = None  # of the last worker
    healed_bytes: int = 0  # of all
    stepped_s: float | None = None  # the first commit of anybody
    step: int | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def total_s(self) -> float | None:
        """Return the seconds from the detection to the first step."""
        return self.stepped_s

    @property
    def still_t(self) -> float:
        """Return when the workers could no longer step."""
        return self.detected_t + (0.0 if self.kind in ABRUPT else self.agreed_s)

    @property
    def stepped_t(self) -> float | None:
        return None if self.stepped_s is None else self.detected_t + self.stepped_s

    @property
    def pause_s(self) -> float | None:
        """Return how long no worker stepped: from the detection of a fault or the agreement on a planned change."""
        return None if self.stepped_t is None else max(0.0, self.stepped_t - self.still_t)

    @property
    def joined(self) -> tuple[str, ...]:
        return tuple(worker for worker in self.after if worker not in self.before)

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(worker for worker in self.before if worker not in self.after)

    def to_json(self) -> dict[str, Any]:
        derived = {"total_s": self.total_s, "pause_s": self.pause_s, "joined": self.joined, "left": self.left}
        return asdict(self) | derived


class EventLine(msgspec.Struct, frozen=True):
    """The fields of an event that are read here; an agent may write others beside them."""

    t: Annotated[float, msgspec.Meta(ge=0, le=1e12)]  # seconds
    event: str
    host: str | None = None
    view: int | None = None
    members: tuple[str, ...] | None = None
    who: tuple[str, ...] | None = None
    step: int | None = None
    bytes: int | float | None = None


def read_events(run_dir: Path) -> tuple[Event, ...]:
    """The events of all hosts that have left some here, by time."""
    lines = [line for path in trace_files(run_dir, EVENTS) for line in read_lines(path)]
    return tuple(sorted((parse_event(data, where) for where, data in lines), key=lambda event: event.t))


def parse_event(data: dict[str, Any], where: str) -> Event:
    """Return the event of one line of an agent's file, whose known fields must be of their types."""
    try:
        line = msgspec.convert(data, EventLine)
    except msgspec.ValidationError as wrong:
        raise UsageError(
            f"{where} must be an event with its time `t` and its name `event`, got {str(data)[:60]} "
            f"({describe_mismatch(str(wrong), EventLine)}); is the file an agent's?"
        ) from None
    about = {name: value for name, value in data.items() if name not in ("t", "host", "event", "view")}
    return Event(t=line.t, host=str(line.host), event=line.event, view=line.view, about=about)


def changes(events: Iterable[Event]) -> tuple[MembershipChange, ...]:
    """One row per view that was agreed on, in their order."""
    seen = sorted(events, key=lambda event: event.t)
    waiting = [event for event in seen if event.event == "detected"]
    agreements: dict[int, Event] = {}
    for event in seen:
        if event.event == "agreed" and event.view is not None:
            agreements.setdefault(event.view, event)
    found: list[MembershipChange] = []
    for view in sorted(agreements):
        previous = found[-1] if found else None
        of_view = [event for event in seen if event.view == view]
        change, used = _change(agreements[view], previous, of_view, waiting)
        waiting = [event for event in waiting if event not in used]
        found.append(change)
    return tuple(found)


def _change(
    agreed: Event, previous: MembershipChange | None, of_view: Sequence[Event], waiting: Sequence[Event]
) -> tuple[MembershipChange, Sequence[Event]]:
    before = previous.after if previous else ()
    after = tuple(agreed.about.get("members") or ())
    reasons = _reasons(agreed, previous, after, waiting)
    named = min(reasons, key=_telling, default=None)
    start = min([reason.t for reason in reasons] or [agreed.t])
    times: dict[str, list[float]] = {
        name: [event.t for event in of_view if event.event == name]
        for name in ("grouped", "healed", "stepped")
    }
    steps = [event.about["step"] for event in of_view if event.event == "stepped" and "step" in event.about]
    change = MembershipChange(
        view=agreed.view or 0,
        kind=named.kind if named else agreed.kind,
        cause=agreed.cause or (named.cause if named else ""),
        who=_workers_concerned(reasons),
        detected_t=start,
        agreed_s=max(0.0, agreed.t - start),
        grouped_s=_offset(max(times["grouped"], default=None), start),
        healed_s=_offset(max(times["healed"], default=None), start),
        healed_bytes=sum(event.about.get("bytes") or 0 for event in of_view if event.event == "healed"),
        stepped_s=_offset(min(times["stepped"], default=None), start),
        step=min(steps, default=None),
        before=before,
        after=after,
    )
    return change, reasons


def _reasons(
    agreed: Event, previous: MembershipChange | None, after: tuple[str, ...], waiting: Sequence[Event]
) -> Sequence[Event]:
    """The detections a change answers: of those who came or went, else of the same cause, else of the same time."""
    before = previous.after if previous else ()
    joined, left = set(after) - set(before), set(before) - set(after)
    since = [event for event in waiting if _between(event, previous, agreed)]
    # A newcomer may have waited, and a death have been noted by one who had yet to hear of a view, while others moved.
    early = [event for event in waiting if event.kind in ("join", *ABRUPT) and event.t <= agreed.t]
    moved = [event for event in waiting if event in since or event in early]
    theirs = [event for event in moved if _names(event, joined if event.kind == "join" else left)]
    same = [event for event in since if agreed.cause and event.cause == agreed.cause]
    reasons = theirs or same or since
    kind = min(reasons, key=_telling).kind if reasons else ""
    if kind in ABRUPT:
        # One fault shows in several ways: a worker that died, and a sum that broke elsewhere a moment earlier.
        broken = [event for event in since if event.kind == "broken"]
        return broken + [event for event in reasons if event.kind in ABRUPT and event not in broken]
    return [event for event in reasons if event.kind == kind]


def _workers_concerned(reasons: Sequence[Event]) -> tuple[str, ...]:
    """Whom the change is about; a broken operation only names who noticed, so it counts if nothing else is known."""
    telling = [event for event in reasons if event.kind != "broken"] or reasons
    return tuple(dict.fromkeys(worker for event in telling for worker in event.who))


def _between(event: Event, previous: MembershipChange | None, agreed: Event) -> bool:
    if event.view is None or agreed.view is None:
        return event.t <= agreed.t
    return event.view < agreed.view and (previous is None or event.view >= previous.view)


def _names(event: Event, workers: set[str]) -> bool:
    """Return whether an event names one of some workers, or the host of one."""
    hosts = {worker.split("/")[0] for worker in workers}
    return any(name in workers or name in hosts for name in event.who)


def _telling(event: Event) -> int:
    kinds = ABRUPT + PLANNED
    return kinds.index(event.kind) if event.kind in kinds else len(kinds)


def _offset(t: float | None, start: float) -> float | None:
    return None if t is None else max(0.0, t - start)


def standstills(found: Sequence[MembershipChange]) -> tuple[tuple[float, float | None], ...]:
    """The times in which nobody stepped, the start apart; one that has not ended has no end.

    A view that gave way to the next before its first step, and the next, are one standstill.
    """
    spans: list[tuple[float, float | None]] = []
    for change in found[1:]:
        if spans and (spans[-1][1] is None or change.still_t <= spans[-1][1]):
            spans[-1] = (spans[-1][0], change.stepped_t)
        else:
            spans.append((change.still_t, change.stepped_t))
    return tuple(spans)


def complete(found: Sequence[MembershipChange]) -> tuple[MembershipChange, ...]:
    """Return the changes that are over: their view or a later one committed a step, or a later one replaced it."""
    last = next((number for number in reversed(range(len(found))) if found[number].stepped_s is not None), -1)
    return tuple(found[: max(last + 1, len(found) - 1)])


def ended(events: Iterable[Event]) -> bool:
    return any(event.event in ("finished", "paused") for event in events)
