"""Requests and answers about models of tables without code: tables, runs, leaderboards and explanations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from weft.documents import Document
from weft.jobs.api.types.common import Digest, Text
from weft.jobs.api.types.data import DataName
from weft.jobs.api.types.jobs import JobView

ColumnName = Annotated[str, Meta(min_length=1, max_length=1000)]
ColumnNames = Annotated[tuple[ColumnName, ...], Meta(max_length=10_000)]
TableFile = Annotated[str, Meta(max_length=1024)]
AutoFamily = Literal["linear", "forest", "boosting", "network", "lightgbm", "xgboost", "catboost"]
AutoMetric = Literal["log_loss", "auc", "accuracy", "rmse", "mae"]


class TableUploadQuery(Document, frozen=True):
    """The name of a table whose bytes are the body of the request."""

    name: Annotated[str, Meta(min_length=1, max_length=1024)]


class TableQuery(Document, frozen=True):
    """A table of a registered data set."""

    dataset: Text  # NAME or NAME@VERSION
    file: TableFile = ""  # of the data set; none: its only table


class TableColumnView(msgspec.Struct, frozen=True):
    """A column as its first rows show it."""

    name: str
    kind: Literal["number", "date", "text"]
    example: str


class TableLook(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a run can begin with."""

    file: str
    columns: tuple[TableColumnView, ...]  # none where they can only be seen once the job runs
    rows: int | None
    dataset: str | None = None  # NAME@VERSION
    upload: str | None = None  # its digest


class NewAutoRun(Document, frozen=True):
    """A run to begin: a table, the column to predict, and how long to look for better models."""

    target: ColumnName
    upload: Digest | None = None  # a table that was sent before
    dataset: Text | None = None  # NAME or NAME@VERSION of a registered data set
    file: TableFile = ""  # the name of the upload, or a path in the data set
    name: DataName | None = None  # of the model; none: of the table and the target
    minutes: Annotated[float, Meta(gt=0, le=10_080)] = 10.0
    task: Literal["auto", "classes", "numbers"] = "auto"
    metric: AutoMetric | None = None
    time: ColumnName | None = None  # validate on later rows
    group: ColumnName | None = None  # rows with the same value stay on one side
    fairness: ColumnNames = ()
    drop: ColumnNames = ()
    models: tuple[AutoFamily, ...] = ()
    trials: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    cpus: Annotated[float, Meta(ge=0, le=65_536)] = 1.0
    memory: Text | None = None
    priority: Annotated[int, Meta(ge=0, le=100)] = 50


class AutoRunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a glance: its job, its table and the best score so far."""

    job: JobView
    table: str
    target: str
    metric: str  # "" before the first model
    score: float | None  # on held-out rows once it is over, cross-validated before
    model: str | None  # NAME@VERSION, once it has completed


class AutoRunsAnswer(msgspec.Struct, frozen=True):
    """Runs, newest first."""

    runs: tuple[AutoRunView, ...]


class AutoBoardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a leaderboard."""

    name: str
    score: float | None  # cross-validated
    held_score: float | None
    weight: float | None  # in the ensemble
    seconds: float | None
    params: dict[str, Any]


class AutoColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column with the role that was found for it."""

    name: str
    role: str
    kind: str
    distinct: int
    missing_share: float | None
    why: str


class AutoFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A warning about a table: a leak, drift, a column that is left out."""

    kind: str
    column: str
    figure: float | None
    threshold: float | None
    sentence: str


class AutoImportance(msgspec.Struct, frozen=True, kw_only=True):
    """The importance of a column: its mean absolute Shapley value, and how the loss grows without it."""

    name: str
    loss_growth: float | None
    mean_shapley: float | None


class AutoReason(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a column on one prediction."""

    column: str
    value: str
    effect: float | None


class AutoExplainedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction taken apart: the base, the largest effects and the rest add up to it."""

    row: int
    base: float | None
    predicted: float | None
    rest: float | None
    reasons: tuple[AutoReason, ...]


class AutoDependence(msgspec.Struct, frozen=True, kw_only=True):
    """The mean prediction where a column has each of some values in all rows."""

    column: str
    values: tuple[float | str | None, ...]
    means: tuple[float | None, ...]


class AutoGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a group of rows beside those of others."""

    column: str
    group: str
    rows: int
    rate: float | None
    ratio: float | None  # to the rate of the group that is chosen most
    loss: float | None
    warned: bool  # the ratio is below four fifths


class AutoExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of a model, by rows that it was not trained on."""

    output: str
    importance: tuple[AutoImportance, ...] = ()
    rows: tuple[AutoExplainedRow, ...] = ()
    dependence: tuple[AutoDependence, ...] = ()
    groups: tuple[AutoGroup, ...] = ()
    calibration: tuple[tuple[float | None, float | None, int], ...] = ()  # mean predicted, share true, rows
    confusion: tuple[tuple[int, ...], ...] = ()
    scores: dict[str, float | None] = msgspec.field(default_factory=dict)


class AutoRunFile(msgspec.Struct, frozen=True):
    """A file of a run that can be downloaded."""

    name: str
    url: str
    bytes: int


class AutoRunDetail(AutoRunView, frozen=True, kw_only=True):
    """A run with its leaderboard as it is now, and its explanations once it is over."""

    doing: str
    spent_s: float | None
    budget_s: float | None
    models: int  # of the leaderboard, which shows the first ones
    rows: int | None
    validation: str
    classes: tuple[str, ...]
    leaderboard: tuple[AutoBoardRow, ...]
    columns: tuple[AutoColumn, ...]
    findings: tuple[AutoFinding, ...]
    notes: tuple[str, ...]
    explanation: AutoExplanation | None
    files: tuple[AutoRunFile, ...]
    deployments: tuple[str, ...]  # that serve its model
