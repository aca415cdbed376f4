"""Jobs as callers see them, and what callers send to make, find and change them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from weft.documents import Document
from weft.jobs.api.types.common import Digest, Limit, Scalar, Text
from weft.jobs.api.types.reports import FindingView, MetricView
from weft.jobs.lifecycle import JobState
from weft.jobs.spec.model import JobSpec, Name, Priority

# Columns by which jobs can be sorted; with - before them, the largest first.
SORTS = ("id", "created", "started", "ended", "name", "project", "queue", "priority", "state")
SpecFields = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/JobSpec"})]


class ReasonView(msgspec.Struct, frozen=True):
    """The reason why a job waits."""

    why: str
    text: str
    place: int | None  # 1: next in the queue
    earliest_ms: int | None


class Headline(msgspec.Struct, frozen=True):
    """A job's most telling metric at a glance."""

    name: str
    last: Scalar | None
    values: tuple[float | None, ...]  # at most 32, oldest first; null where a value is not finite


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a list."""

    id: int
    name: str
    project: str
    user: str
    kind: str  # run; tracked: reported by a foreign client
    state: JobState
    wanted: str | None  # asked for and not done yet: stop, pause
    queue: str
    priority: int
    workers: int  # that it has now
    min_workers: int
    max_workers: int
    attempt: int
    progress: float | None  # 0 to 1
    cause: str | None  # of a failure
    message: str | None
    reason: ReasonView | None  # of a waiting job
    snapshot: str | None
    parent_id: int | None
    tags: dict[str, str]
    pinned: bool
    created_ms: int
    queued_ms: int
    started_ms: int | None
    ended_ms: int | None
    headline: Headline | None
    mine: bool  # the caller may act on it


class HostShare(msgspec.Struct, frozen=True):
    """Workers of a job on one host."""

    host: str
    workers: int


class AttemptView(msgspec.Struct, frozen=True):
    """One attempt to run a job."""

    number: int
    started_ms: int
    ended_ms: int | None
    hosts: tuple[HostShare, ...]
    code: int | None  # exit status of its launcher
    message: str | None


class JobDetail(JobView, frozen=True, kw_only=True):
    """One job with all that belongs to it."""

    spec: JobSpec
    command: str
    attempts: tuple[AttemptView, ...]
    hosts: tuple[HostShare, ...]  # that it runs on now
    after: tuple[int, ...]  # jobs that must complete first
    metrics: tuple[MetricView, ...]
    params: dict[str, str]
    environment: dict[str, str]
    findings: tuple[FindingView, ...]


class JobsQuery(Document, frozen=True):
    """Conditions on the jobs of a list."""

    state: Text | None = None  # several with commas
    project: Text | None = None
    user: Text | None = None
    q: Text | None = None  # text in the name, or a tag: name=value
    sort: Annotated[str, Meta(pattern=f"^-?({'|'.join(SORTS)})$")] = "-id"
    limit: Limit = 50
    cursor: Text | None = None


class JobsAnswer(msgspec.Struct, frozen=True):
    """One page of jobs, how many the filter lets through, and how many there are in each state."""

    jobs: tuple[JobView, ...]
    next: str | None
    total: int
    counts: dict[str, int]


class Submission(Document, frozen=True):
    """A job to be queued: its specification as data or as YAML text."""

    spec: SpecFields | None = None
    yaml: Annotated[str, Meta(max_length=1 << 20)] | None = None
    snapshot: Digest | None = None
    dry_run: bool = False


class PlannedJob(msgspec.Struct, frozen=True):
    """One job that a dry run would have made."""

    name: str
    command: str
    min_workers: int
    max_workers: int
    spec: JobSpec


class SubmitAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The jobs that were made: several of an array, none of a dry run."""

    jobs: tuple[JobView, ...]
    plan: tuple[PlannedJob, ...] | None = None  # of a dry run
    notes: tuple[str, ...] = ()  # what must hold for them to run, as far as the service cannot tell


class JobChanges(Document, frozen=True):
    """Changes to a job; what is left out stays."""

    priority: Priority | UnsetType = UNSET
    tags: dict[Name, Text] | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    project: Name | UnsetType = UNSET


class ScaleBody(Document, frozen=True):
    """The number of workers that an elastic job shall have."""

    workers: Annotated[int, Meta(ge=1, le=65_536)]


class CloneBody(Document, frozen=True):
    """Fields of the specification that the copy shall have otherwise: {"queue.priority": 80, "run": "..."}."""

    changes: dict[str, Any] = msgspec.field(default_factory=dict)


class JobNameUse(msgspec.Struct, frozen=True):
    """A project with the number of its jobs."""

    name: str
    jobs: int
    running: int
    last_ms: int | None


class ProjectsAnswer(msgspec.Struct, frozen=True):
    """All projects that the caller may see jobs of."""

    projects: tuple[JobNameUse, ...]


class QueueView(msgspec.Struct, frozen=True):
    """A queue with the jobs that wait in it."""

    name: str
    waiting: int
    running: int
    jobs: tuple[JobView, ...]  # those that wait, in the order of their places; at most 100


class QueuesAnswer(msgspec.Struct, frozen=True):
    """All queues that have jobs."""

    queues: tuple[QueueView, ...]
