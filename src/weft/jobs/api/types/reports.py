"""Reports of a job: metrics, curves, events, findings, log lines, and the history of an elastic run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from weft.documents import Document
from weft.jobs.api.types.common import Id, Limit, NotFinite, Scalar, Text, Whole


class MetricView(msgspec.Struct, frozen=True):
    """One metric of a job at a glance."""

    name: str
    points: int
    last: Scalar | None
    last_step: int | None
    last_ms: int | None
    lowest: float | None  # of finite values
    highest: float | None


class MetricsAnswer(msgspec.Struct, frozen=True):
    """All metrics of a job."""

    metrics: tuple[MetricView, ...]


class CurvesQuery(Document, frozen=True):
    """The part of some metrics that a chart shows."""

    names: Annotated[str, Meta(max_length=10_000)] = ""  # with commas; all if none is named
    first_step: Whole | None = None
    last_step: Whole | None = None
    points: Annotated[int, Meta(ge=1, le=10_000)] = 2000  # at most, of each curve


class OddValue(msgspec.Struct, frozen=True):
    """A place of a curve where a value is not a finite number."""

    index: int
    value: NotFinite


class CurveView(msgspec.Struct, frozen=True):
    """One metric in at most a given number of groups of points that follow each other; spikes stay in `low` and `high`.

    `mean`, `low` and `high` are null where no value of a group is finite; `odd` lists all groups with such values.
    """

    name: str
    steps: tuple[int, ...]
    times_ms: tuple[int, ...]
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    odd: tuple[OddValue, ...]


class CurvesAnswer(msgspec.Struct, frozen=True):
    """Curves in the order in which they were asked for."""

    curves: tuple[CurveView, ...]


MetricName = Annotated[str, Meta(min_length=1, max_length=250)]
Point = tuple[MetricName, Whole, Whole, Scalar]  # name, step, time_ms, value


class PointsBody(Document, frozen=True):
    """Points of a job's metrics; a batch that was sent before, by its source and sequence, changes nothing."""

    source: Annotated[str, Meta(min_length=1, max_length=100)]
    sequence: Id
    points: Annotated[tuple[Point, ...], Meta(max_length=10_000)]


class PointsAnswer(msgspec.Struct, frozen=True):
    """The fate of a batch: kept, or known already."""

    new: bool


class EventsQuery(Document, frozen=True):
    """Events after one that was seen."""

    after: Id = 0
    limit: Limit = 200


class EventView(msgspec.Struct, frozen=True):
    """One event of a job."""

    id: int
    time_ms: int
    kind: str
    data: dict[str, Any]


class EventsAnswer(msgspec.Struct, frozen=True):
    """Events, oldest first."""

    events: tuple[EventView, ...]


class FindingView(msgspec.Struct, frozen=True):
    """One observation of a rule of advice."""

    rule: str
    severity: str
    text: str
    evidence: dict[str, Scalar]
    action: str | None  # that was taken
    first_ms: int
    last_ms: int


class FindingsAnswer(msgspec.Struct, frozen=True):
    """All findings about a job."""

    findings: tuple[FindingView, ...]


class LogsQuery(Document, frozen=True):
    """The log lines that are wanted."""

    rank: Annotated[int, Meta(ge=-1, le=65_536)] | None = None  # -1: the launcher; none: all
    attempt: Id | None = None  # the newest if none is given
    cursor: Text | None = None  # `next` of the page before
    before: Text | None = None  # `first` of a page: the lines above it
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    grep: Annotated[str, Meta(max_length=1000)] | None = None  # a regular expression
    tail: Annotated[int, Meta(ge=0, le=10_000)] | None = None  # begin so many lines before the end


class LogLineView(msgspec.Struct, frozen=True):
    """One line of a log."""

    rank: int  # -1: the launcher
    number: int  # from 1, in the log of the rank
    text: str


class LogsAnswer(msgspec.Struct, frozen=True):
    """Log lines, and the cursor after the last of them."""

    lines: tuple[LogLineView, ...]
    next: str  # ask again with it for newer lines
    first: str  # where the first line begins
    ended: bool  # no line will follow
    ranks: tuple[int, ...]  # that have a log


class RawLogQuery(Document, frozen=True):
    """The log of one rank, as it is."""

    rank: Annotated[int, Meta(ge=-1, le=65_536)] = -1
    attempt: Id | None = None


class AttemptQuery(Document, frozen=True):
    """The attempt that is meant, the newest if none is given."""

    attempt: Id | None = None


class TimelineView(msgspec.Struct, frozen=True):
    """The history of an elastic run, from its ledger and its views; empty for other runs."""

    elastic: bool
    items: tuple[dict[str, Any], ...]


class LedgerView(msgspec.Struct, frozen=True):
    """The verdict on which samples each committed step consumed."""

    elastic: bool
    verdict: Literal["whole", "broken", "running", "none"]
    text: str
    steps: int
    samples: int
    problems: tuple[str, ...]


class RankView(msgspec.Struct, frozen=True):
    """One worker: where it ran and how fast, for the heat strip."""

    rank: int
    host: str
    step_ms: float | None
    values: tuple[float | None, ...]  # times of its last steps in ms, at most 64


class RanksAnswer(msgspec.Struct, frozen=True):
    """All workers of a job's attempt."""

    ranks: tuple[RankView, ...]
    exposed_share: float | None  # of a step's time, waiting for peers
