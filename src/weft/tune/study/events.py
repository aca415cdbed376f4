"""Events of a study. Its state is what they make, one after the other, and a journal keeps them as lines of JSON."""

from __future__ import annotations

from typing import Any

import msgspec


class StudyEvent(msgspec.Struct, frozen=True, tag_field="is", omit_defaults=True, kw_only=True):
    """The root of all events; `at_s` is seconds since 1970, or on a simulated clock."""

    at_s: float = 0.0


class StudyBegun(StudyEvent, frozen=True, tag="begun"):
    """A study with its settings; also when they were changed by extending it."""

    config: dict[str, Any]


class TrialAdded(StudyEvent, frozen=True, tag="added"):
    """A trial that was suggested, or given by somebody."""

    trial: int
    params: dict[str, Any]
    bracket: int = 0
    given: bool = False
    source: str = ""  # an earlier study that it comes from
    attrs: dict[str, Any] = {}


class TrialBegun(StudyEvent, frozen=True, tag="started"):
    """A trial that runs from now on, until it has used so much of the resource; None: until it ends by itself."""

    trial: int
    until: int | None = None


class TrialExtended(StudyEvent, frozen=True, tag="extended"):
    """A running trial that may go on further, without a pause."""

    trial: int
    until: int | None = None


class TrialPromoted(StudyEvent, frozen=True, tag="promoted"):
    """A resting trial that somebody lets go on, before all others and whatever its score, until so much is used."""

    trial: int
    until: int | None = None


class TrialHeld(StudyEvent, frozen=True, tag="held"):
    """A trial that somebody paused: it rests until somebody promotes it."""

    trial: int


class TrialReported(StudyEvent, frozen=True, tag="reported"):
    """Metrics of a trial at one step."""

    trial: int
    step: int
    values: dict[str, float | str]


class TrialCurve(StudyEvent, frozen=True, tag="curve"):
    """The first metric of a trial at many steps, which came together."""

    trial: int
    steps: tuple[int, ...]
    values: tuple[float | str, ...]


class TrialNoted(StudyEvent, frozen=True, tag="noted"):
    """Notes about a trial, under names, from whoever ran or looked at it, and values that must not be above zero."""

    trial: int
    attrs: dict[str, Any] = {}
    constraints: dict[str, float] = {}
    system: dict[str, Any] = {}  # of searchers and rules, for themselves


class StudyNoted(StudyEvent, frozen=True, tag="study-noted"):
    """Notes about a study, under names; and names of its metrics for tables."""

    attrs: dict[str, Any] = {}
    metric_names: tuple[str, ...] = ()


class TrialDrew(StudyEvent, frozen=True, tag="drew"):
    """Parameters that a function asked for while it ran, and the domains that it named for them."""

    trial: int
    params: dict[str, Any]
    domains: dict[str, Any] = {}


class TrialPaused(StudyEvent, frozen=True, tag="paused"):
    """A trial whose process has ended, and which may go on from its checkpoint.

    `done` is how much of the resource it used, where its process ended by itself at a limit that it was told.
    """

    trial: int
    done: int = 0


class TrialCloned(StudyEvent, frozen=True, tag="cloned"):
    """A trial that goes on with the weights of another, and other parameters."""

    trial: int
    source: int
    params: dict[str, Any]


class TrialLost(StudyEvent, frozen=True, tag="lost"):
    """A trial whose process died, or that ended with its study, and that is started again.

    It is `counted` against the retries if it died by itself.
    """

    trial: int
    message: str = ""
    counted: bool = True


class TrialEnded(StudyEvent, frozen=True, tag="ended"):
    """A trial that is over: completed, stopped early, or failed."""

    trial: int
    state: str
    values: tuple[float | str, ...] | None = None
    message: str = ""
    cut: bool = False  # by the end of its study: it goes on if the study does


class StudyMoved(StudyEvent, frozen=True, tag="moved"):
    """Another state of the whole study: running, paused, stopped, completed, failed.

    One that runs and is told to be running was taken up again after whoever ran it had gone.
    """

    state: str
    message: str = ""


class StudyActed(StudyEvent, frozen=True, tag="acted"):
    """An act of insights that may: wider ranges, fixed parameters, bounds of new points; maybe nothing."""

    space: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    below: dict[str, float] = {}
    message: str = ""


class InboxRead(StudyEvent, frozen=True, tag="inbox"):
    """The place in the file of requests up to which they were carried out."""

    position: int


AnyEvent = (
    StudyBegun | StudyMoved | StudyActed | StudyNoted | InboxRead | TrialAdded | TrialBegun | TrialExtended
    | TrialPromoted | TrialHeld | TrialReported | TrialCurve | TrialDrew | TrialNoted | TrialPaused | TrialCloned
    | TrialLost | TrialEnded
)  # fmt: skip
_decoder = msgspec.json.Decoder(AnyEvent)
_encoder = msgspec.json.Encoder()


def encode_event(event: StudyEvent) -> bytes:
    """Return an event as one line."""
    return _encoder.encode(event) + b"\n"


def decode_event(line: bytes) -> AnyEvent:
    """Return the event of a line."""
    found: AnyEvent = _decoder.decode(line)
    return found


def as_number(value: float | str) -> float:
    """Return a number that JSON may have had to hold as text: NaN, Infinity."""
    return float(value)


def as_json_number(value: float) -> float | str:
    """Return a number as JSON can hold it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value
