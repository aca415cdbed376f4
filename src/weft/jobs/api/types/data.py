"""Data sets, models and deployments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from weft.documents import Document
from weft.jobs.api.types.common import Id, Scalar

DataName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
DeploymentName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$")]
AliasName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,99}$")]
Note = Annotated[str, Meta(max_length=10_000)]
Place = Annotated[str, Meta(min_length=1, max_length=4096)]
VersionNumber = Annotated[int, Meta(ge=1, le=999_999_999)]


class DatasetVersionView(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a data set."""

    version: int
    source: str  # a path on the hosts, or s3://BUCKET/PREFIX
    digest: str
    files: int
    bytes: int
    note: str
    user: str
    created_ms: int


class DatasetView(msgspec.Struct, frozen=True, kw_only=True):
    """A data set with its versions, newest first."""

    name: str
    description: str
    user: str
    created_ms: int
    versions: tuple[DatasetVersionView, ...]
    mine: bool  # the caller may remove it


class DatasetsAnswer(msgspec.Struct, frozen=True):
    """All data sets."""

    datasets: tuple[DatasetView, ...]


class NewDataset(Document, frozen=True):
    """A version to register; the data stays where it is."""

    name: DataName
    source: Place
    note: Note = ""
    description: Note | None = None


class DataFileView(msgspec.Struct, frozen=True):
    """One file of a data set."""

    path: str
    size: int
    digest: str


class DatasetVersionDetail(DatasetVersionView, frozen=True, kw_only=True):
    """One version with its first files, and what came of it."""

    name: str
    listing: tuple[DataFileView, ...]  # at most 1000
    jobs: tuple[int, ...]  # that have read this data, newest first
    models: tuple[str, ...]  # that came from it, as NAME@VERSION


class ModelVersionView(msgspec.Struct, frozen=True, kw_only=True):
    """One version in the model store."""

    version: int
    aliases: tuple[str, ...]
    sha256: str
    bytes: int
    created: str  # ISO 8601
    job: int | None  # that made it
    deployments: tuple[str, ...]


class ModelView(msgspec.Struct, frozen=True):
    """A model with its versions, newest first."""

    name: str
    versions: tuple[ModelVersionView, ...]


class ModelsAnswer(msgspec.Struct, frozen=True):
    """All models of the store."""

    models: tuple[ModelView, ...]


class LineageData(msgspec.Struct, frozen=True):
    """Data that the job of a model has read."""

    name: str
    digest: str
    source: str
    kind: str


class ModelLineage(msgspec.Struct, frozen=True, kw_only=True):
    """The way from data to a model, kept when it was made."""

    job: int | None  # None: it is gone
    job_name: str
    project: str
    user: str
    code: str | None  # digest of the snapshot
    git_commit: str | None
    data: tuple[LineageData, ...]
    params: dict[str, str]
    metrics: dict[str, Scalar]
    ledger: dict[str, Any] | None  # the verdict on its samples


class ModelVersionDetail(ModelVersionView, frozen=True, kw_only=True):
    """One version with its card and its origin."""

    name: str
    card: dict[str, Any]
    lineage: ModelLineage | None


class NewModel(Document, frozen=True):
    """A file of a job that shall be a model."""

    job: Id
    model: DataName
    path: Annotated[str, Meta(min_length=1, max_length=1024)] = "model.onnx"
    alias: AliasName | None = None


class NewAlias(Document, frozen=True):
    """A name for a version."""

    alias: AliasName
    version: VersionNumber


class DeploymentView(msgspec.Struct, frozen=True, kw_only=True):
    """One served model."""

    name: str
    model: str
    version: int
    previous: tuple[int, ...]  # versions served before, the last one last
    state: Literal["starting", "running", "failed", "stopped"]
    message: str | None
    url: str | None  # on the service's machine
    user: str
    created_ms: int
    changed_ms: int
    mine: bool


class ServingView(msgspec.Struct, frozen=True, kw_only=True):
    """The load and latency of a deployment since its version was loaded."""

    requests: int
    failures: int
    in_flight: int
    versions: tuple[int, ...]  # loaded now
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class CanaryView(msgspec.Struct, frozen=True):
    """A version that answers a share of the requests."""

    version: int
    percent: float


class NewCanary(Document, frozen=True):
    """Another version for a share of the requests; null ends it."""

    version: VersionNumber | None
    percent: Annotated[float, Meta(ge=0, le=100)] = 10.0


class VersionServing(msgspec.Struct, frozen=True):
    """The figures of one version that is loaded."""

    version: int
    figures: ServingView


class DeploymentDetail(DeploymentView, frozen=True, kw_only=True):
    """One deployment with its figures; without while it does not answer."""

    figures: ServingView | None
    canary: CanaryView | None
    by_version: tuple[VersionServing, ...]
    inputs: tuple[dict[str, Any], ...]  # of the model, as the open inference protocol names them
    outputs: tuple[dict[str, Any], ...]


class DeploymentsAnswer(msgspec.Struct, frozen=True):
    """All deployments."""

    deployments: tuple[DeploymentView, ...]


class NewDeployment(Document, frozen=True):
    """A model to serve, as NAME, NAME@VERSION or NAME@ALIAS."""

    name: DeploymentName
    model: Annotated[str, Meta(min_length=1, max_length=210)]


class InferenceRequest(Document, frozen=True):
    """A request of the open inference protocol, with its tensors in JSON."""

    inputs: tuple[dict[str, Any], ...]
    id: str | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    outputs: tuple[dict[str, Any], ...] | None = None


class InferenceAnswer(msgspec.Struct, frozen=True):
    """The tensors that a model answers with."""

    model_name: str
    outputs: tuple[dict[str, Any], ...]
