"""Hosts and the overview."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from weft.documents import Document
from weft.jobs.api.types.jobs import JobView

HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._@:-]{0,248}[A-Za-z0-9])?$")]
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=/-]{0,99}$")]
Rack = Annotated[str, Meta(max_length=100)]
Labels = Annotated[tuple[Label, ...], Meta(max_length=100)]


class ResourceView(msgspec.Struct, frozen=True):
    """An amount of what hosts have and jobs take."""

    cpus: float = 0.0
    memory_bytes: float = 0.0
    gpus: float = 0.0


class HostJob(msgspec.Struct, frozen=True):
    """A job that runs on a host."""

    id: int
    name: str
    workers: int


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """One host."""

    name: str
    state: str  # up, drained, lost
    labels: tuple[str, ...]
    rack: str
    message: str | None
    seen_ms: int | None
    total: ResourceView
    used: ResourceView
    jobs: tuple[HostJob, ...]


class LinkView(msgspec.Struct, frozen=True):
    """A measured link from a host to another."""

    to: str
    mbps: float | None
    back_mbps: float | None  # in the other direction
    rtt_ms: float | None
    measured_ms: int


class HostDetail(HostView, frozen=True, kw_only=True):
    """One host with its sockets, accelerators and network cards."""

    topology: dict[str, Any] | None
    links: tuple[LinkView, ...]  # as runs over several hosts, and weft check, have measured them


class HostsAnswer(msgspec.Struct, frozen=True):
    """All hosts."""

    hosts: tuple[HostView, ...]


class NewHost(Document, frozen=True):
    """A host that may run jobs from now on."""

    name: HostName
    labels: Labels = ()
    rack: Rack = ""


class HostChanges(Document, frozen=True):
    """Changes to a host; what is left out stays."""

    labels: Labels | UnsetType = UNSET
    rack: Rack | UnsetType = UNSET


class HostCounts(msgspec.Struct, frozen=True):
    """Numbers of hosts by state."""

    up: int
    drained: int
    lost: int


class CapacityView(msgspec.Struct, frozen=True):
    """All hosts together."""

    total: ResourceView
    used: ResourceView


class FindingOfJob(msgspec.Struct, frozen=True):
    """A recent finding, with its job."""

    job: int
    name: str
    rule: str
    severity: str
    text: str
    last_ms: int


class OverviewAnswer(msgspec.Struct, frozen=True):
    """The state of the service on one page; of each list at most 20."""

    counts: dict[str, int]
    hosts: HostCounts
    capacity: CapacityView
    running: tuple[JobView, ...]
    waiting: tuple[JobView, ...]
    failures: tuple[JobView, ...]  # the newest
    findings: tuple[FindingOfJob, ...]


class RetentionBody(Document, frozen=True):
    """Bounds of what is kept, to be looked at or carried out now."""

    days: Annotated[int, Meta(ge=1, le=36_500)] | None = None  # after the end of a job
    most_bytes: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None  # of all jobs' files
    dry_run: bool = True


class RemovedJob(msgspec.Struct, frozen=True):
    """A job that is kept no longer."""

    id: int
    name: str
    ended_ms: int
    bytes: int
    why: str


class RetentionAnswer(msgspec.Struct, frozen=True):
    """The jobs that were removed, or would be."""

    jobs: tuple[RemovedJob, ...]
    bytes: int
    dry_run: bool


class HealthAnswer(msgspec.Struct, frozen=True):
    """The health of the service, also for those who are not logged in."""

    status: Literal["ok", "degraded"]
    version: str
    problems: tuple[str, ...] = ()
