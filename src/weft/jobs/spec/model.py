"""The fields of a job specification, as they are written in YAML; see `read.py` for how they are checked.

run: train.py --epochs 20          # the one field that must be there
workers: 2:8                       # elastic from 2 to 8; a number is a fixed size
resources: {gpus: 1, cpus: 4, memory: 16GiB}
queue: {priority: 50, max_time: 4h}
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from weft.documents import Document
from weft.launch.pod_settings import KubernetesConfig

Priority = Annotated[int, Meta(ge=0, le=100)]
Count = Annotated[int, Meta(ge=1, le=65_536)]
Few = Annotated[int, Meta(ge=0, le=1000)]
Amount = Annotated[float, Meta(ge=0, le=1_000_000)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")]
Size = str | int  # 16GiB, or bytes
Duration = str | int | float  # 90s, 4h, 1h30m, or seconds
Cause = Literal["error", "host-lost", "time-out", "out-of-memory"]
JobEvent = Literal["started", "completed", "failed", "stopped", "paused", "advice", "retried"]


class GitCode(Document, frozen=True):
    """Code from a repository in place of a folder."""

    git: str
    ref: str = "HEAD"


class ResourceSpec(Document, frozen=True):
    """Resources of one worker, and the hosts that may take it."""

    gpus: Amount = 0.0
    cpus: Amount = 1.0
    memory: Size | None = None
    hosts: str | tuple[str, ...] = ()  # labels, all of which a host must have
    lms: Size | None = None  # device memory that a worker may use


class QueueSpec(Document, frozen=True):
    """The place of a job among others."""

    name: Name = "default"
    priority: Priority = 50
    preemptible: bool = True
    hold: bool = False
    max_time: Duration | None = None
    after: tuple[int | str, ...] = ()  # jobs that must complete first


class RetrySpec(Document, frozen=True):
    """The rules for another attempt after a failed one."""

    max: Few = 0
    on: tuple[Cause, ...] = ("host-lost", "error")
    backoff: Duration = "30s"  # doubled after each attempt
    avoid_hosts: bool = True


class TensorboardSource(Document, frozen=True, tag_field="kind", tag="tensorboard"):
    """Metrics from TensorBoard event files in a folder."""

    folder: str


class RegexSource(Document, frozen=True, tag_field="kind", tag="regex"):
    """Metrics from output lines; each named group of the expression is one, as `prefix/name` with a prefix."""

    pattern: str
    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._/-]{0,100}$")] = ""


class JsonLinesSource(Document, frozen=True, tag_field="kind", tag="file"):
    """Metrics from a file of JSON lines."""

    path: str


class OutputSource(Document, frozen=True, tag_field="kind", tag="output"):
    """Metrics from lines of JSON that the job prints; trials of studies have it from the start."""


MetricSource = TensorboardSource | RegexSource | JsonLinesSource | OutputSource


class NotifySpec(Document, frozen=True):
    """A web address to which events are sent."""

    webhook: str
    on: tuple[JobEvent, ...] = ("completed", "failed")


class ExportSpec(Document, frozen=True):
    """The model that a completed job puts into the model store."""

    model: Name
    path: str = "model.onnx"
    alias: Name | None = None


class JobSpec(Document, frozen=True):
    """One job, as its owner writes it."""

    run: str | tuple[str, ...]
    name: Name | None = None
    project: Name = "default"
    description: Annotated[str, Meta(max_length=10_000)] = ""
    code: str | GitCode = "."
    workers: Count | str = 1
    engine: Literal["auto", "local", "ssh", "mpi", "slurm", "kubernetes"] = "auto"
    kubernetes: KubernetesConfig | None = None  # the pods of that engine
    resources: ResourceSpec = ResourceSpec()
    data: dict[Name, str] = field(default_factory=dict)
    outputs: dict[Name, str] = field(default_factory=dict)
    env: dict[VariableName, str | int | float | bool] = field(default_factory=dict)
    secrets: tuple[VariableName, ...] = ()
    tags: dict[Name, str] = field(default_factory=dict)
    queue: QueueSpec = QueueSpec()
    retry: RetrySpec = RetrySpec()
    metrics: tuple[MetricSource, ...] = ()
    advice: dict[Name, dict[str, float | bool | str]] = field(
        default_factory=dict
    )  # thresholds of rules, and `act`
    notify: tuple[NotifySpec, ...] = ()
    export: ExportSpec | None = None
    array: dict[Name, tuple[str | int | float, ...]] | None = None  # one job for each combination
    schedule: str | None = None  # cron
