"""Jobs of the store as the scheduler sees them. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from weft.jobs.lifecycle import ENDED, JobState
from weft.jobs.scheduler.model import NO_LIMIT_S, Allocation, Demand, JobRequest, Placed, Resources
from weft.jobs.service.attempts.command import is_elastic
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import ResolvedSpec, resolve
from weft.jobs.store.attempts import AttemptShare, StoredAttempt
from weft.jobs.store.jobs import StoredJob


@dataclass(frozen=True)
class KnownJob:
    """One job that has not ended, with what its specification means and what it waits for."""

    job: StoredJob
    resolved: ResolvedSpec
    after: Mapping[int, JobState | None] = field(
        default_factory=dict
    )  # states of jobs that must complete first

    @property
    def spec(self) -> JobSpec:
        return self.resolved.spec

    @property
    def blocked_by(self) -> tuple[int, ...]:
        return tuple(other for other, state in self.after.items() if state != "completed")

    @property
    def never_unblocked(self) -> tuple[int, ...]:
        """Return the jobs it waits for that have ended otherwise than well, or were removed."""
        return tuple(
            o for o, state in self.after.items() if state is None or (state in ENDED and state != "completed")
        )


def known_job(job: StoredJob, spec: JobSpec, after: Mapping[int, JobState | None]) -> KnownJob:
    return KnownJob(job, resolve(spec), after)


def needs_of(resolved: ResolvedSpec) -> Resources:
    """Return what one worker takes of our hosts; workers that Slurm or Kubernetes place take nothing."""
    if resolved.spec.engine in ("slurm", "kubernetes"):
        return Resources()
    resources = resolved.spec.resources
    return Resources(resources.cpus, float(resolved.memory_bytes), resources.gpus)


def request_of(known: KnownJob) -> JobRequest:
    """Return a job as the scheduler is asked for it."""
    job, resolved = known.job, known.resolved
    most = resolved.max_workers if is_elastic(resolved) else resolved.min_workers
    if job.workers_limit is not None:
        most = max(resolved.min_workers, min(most, job.workers_limit))
    avoid = frozenset(msgspec.json.decode(job.avoid, type=tuple[str, ...]))
    return JobRequest(
        id=job.id,
        user=job.user_name,
        demand=Demand(needs_of(resolved), resolved.labels, avoid),
        submitted_s=job.created_ms / 1000,
        min_workers=resolved.min_workers,
        max_workers=most,
        priority=job.priority,
        time_limit_s=resolved.time_limit_s if resolved.time_limit_s is not None else NO_LIMIT_S,
        preemptible=resolved.spec.queue.preemptible,
        not_before_s=job.not_before_ms / 1000,
        held=job.state == "held",
        blocked_by=known.blocked_by,
    )


def without_avoiding(request: JobRequest) -> JobRequest:
    """Return a request that may use every host, for when no other is left."""
    return replace(request, demand=Demand(request.demand.per_worker, request.demand.labels))


def allocation_of(shares: Iterable[AttemptShare]) -> Allocation:
    return tuple(sorted((share.host, share.workers) for share in shares))


def placed_of(request: JobRequest, attempt: StoredAttempt, *, pausing: bool) -> Placed:
    """Return what a job that was started holds."""
    return Placed(
        request=request,
        allocation=allocation_of(attempt.shares),
        started_s=attempt.started_ms / 1000,
        pausing=pausing,
    )


def now_s() -> float:
    return time.time()
