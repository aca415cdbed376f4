"""Requests and answers about studies: searches whose trials are jobs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from weft.documents import Document
from weft.jobs.api.types.common import Id
from weft.jobs.api.types.data import AliasName, DataName
from weft.tune.results.importance import ParameterImportance
from weft.tune.results.insights import StudyInsight
from weft.tune.results.interactions import ParameterInteraction
from weft.tune.results.views import StudyView, TrialView

Number = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class StudiesAnswer(msgspec.Struct, frozen=True):
    """Studies, the newest first."""

    studies: tuple[StudyView, ...]


class NewStudy(Document, frozen=True):
    """A study to begin: its settings as data or as the text of study.yaml, and the digest of its code."""

    config: dict[str, Any] | None = None
    yaml: Annotated[str, Meta(max_length=1 << 20)] | None = None
    snapshot: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None
    warm_start: Id | None = None  # a study whose completed trials are taken over
    dry_run: bool = False


class StudyAnswer(msgspec.Struct, frozen=True):
    """One study; in a dry run there is none yet, and `trials` are the first points."""

    study: StudyView | None
    trials: tuple[TrialView, ...] = ()


class StudyDetail(msgspec.Struct, frozen=True):
    """One study with its settings, insights and importances."""

    study: StudyView
    config: dict[str, Any]
    front: tuple[int, ...]  # trials that no other beats in every metric
    insights: tuple[StudyInsight, ...]
    importances: tuple[ParameterImportance, ...]  # none while too few trials are complete
    events: int  # after which `since` of trials tells what is new
    mine: bool


class TrialsQuery(Document, frozen=True):
    """Trials that changed since an event; all by default. With `tails=true` only what is new of their curves."""

    since: Number = 0
    curves: bool = False
    tails: bool = False


class TrialsAnswer(msgspec.Struct, frozen=True):
    """Trials by number; `events` is the `since` of the next question."""

    trials: tuple[TrialView, ...]
    events: int


class StudyEventsQuery(Document, frozen=True):
    """Events from a number on; with `reports=false` those of metrics, which are most of them, are left out."""

    after: Number = 0
    reports: bool = True


class StudyEventsAnswer(msgspec.Struct, frozen=True):
    """The events that a study's state is made of, as its journal has them."""

    events: tuple[dict[str, Any], ...]
    next: int


class StudyChanges(Document, frozen=True):
    """A study's new budget, parallelism, given points, failures that end it, or retries of a lost trial."""

    budget: dict[str, Any] | None = None
    parallel: Annotated[int, Meta(ge=1, le=4096)] | None = None
    points: tuple[dict[str, Any], ...] | None = None
    act: dict[str, bool] | None = None
    failures: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    retries: Annotated[int, Meta(ge=0, le=100)] | None = None


class AddedTrial(Document, frozen=True):
    """A point that a user gives."""

    params: dict[str, Any]


class TrialPromotion(Document, frozen=True):
    """A promotion by hand: a paused trial goes on to its next rung, or as far as `until` says."""

    until: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None


class StudyModel(Document, frozen=True):
    """A file of a trial that becomes a version of a model: of the best one, unless `trial` names another."""

    model: DataName
    path: Annotated[str, Meta(min_length=1, max_length=1024)] = "model.onnx"
    alias: AliasName | None = None
    trial: Number | None = None


class StudyCopy(Document, frozen=True):
    """Changes to the settings of a study for a new one, field by field, and whether it takes the trials over."""

    changes: dict[str, Any] = msgspec.field(default_factory=dict)
    warm: bool = False


class InteractionsAnswer(msgspec.Struct, frozen=True):
    """Interactions of pairs of parameters, the largest first; none while too few trials are complete."""

    interactions: tuple[ParameterInteraction, ...]


class AlgorithmsAnswer(msgspec.Struct, frozen=True):
    """The names that a study may use, and those of optimizers for a space."""

    searches: tuple[str, ...]
    schedules: tuple[str, ...]
    rules: tuple[str, ...]
    optimizers: tuple[str, ...]
