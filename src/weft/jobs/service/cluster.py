"""The index of a cluster in memory: the jobs that have not ended, the hosts, and the scheduler's view of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from weft.jobs.scheduler.decide import Decision, Scheduler
from weft.jobs.scheduler.explain import Explanations, Reason
from weft.jobs.scheduler.model import Allocation, JobRequest, Placed, Policy, Resources, merged
from weft.jobs.service.attempts.records import RunningAttempt
from weft.jobs.service.attempts.shares import share_out
from weft.jobs.service.index import (
    KnownJob,
    allocation_of,
    needs_of,
    now_s,
    placed_of,
    request_of,
    without_avoiding,
)
from weft.jobs.store.attempts import AttemptShare, StoredAttempt
from weft.jobs.store.hosts import StoredHost

GIVING_WAY = (
    "pause",
    "preempt",
    "restart",
    "stop",
    "time-out",
)  # what is wanted of jobs that are about to leave


class ClusterIndex:
    """Jobs and hosts as the store says they are; `changed` is set by whatever a decision could depend on."""

    def __init__(self, policy: Policy) -> None:
        self.hosts: dict[str, StoredHost] = {}
        self.scheduler = Scheduler((), policy)
        self.known: dict[int, KnownJob] = {}
        self.changed = True
        self.decided_s = float("-inf")
        self._decision: Decision | None = None
        self._explanations: Explanations | None = None

    # -- what the store says ----------------------------------------------------------------------

    def note_change(self) -> None:
        """Have the next decision and the next answer look at everything again."""
        self.changed = True
        self._explanations = None

    def set_hosts(self, hosts: Iterable[StoredHost]) -> None:
        """Replace the hosts; jobs keep what they hold."""
        self.hosts = {host.name: host for host in hosts}
        self.scheduler.set_hosts(host.capacity for host in self.hosts.values())
        self.note_change()

    def set_policy(self, policy: Policy) -> None:
        """Replace weights and quotas."""
        self.scheduler.policy = policy
        self.note_change()

    def set_waiting(self, known: KnownJob) -> None:
        """Note a job that waits: queued or held ones may start, paused ones not."""
        self.known[known.job.id] = known
        self.scheduler.remove(known.job.id, now_s())
        if known.job.state != "paused":
            self.scheduler.add(self.request(known), now_s())
        self.note_change()

    def set_active(self, known: KnownJob) -> None:
        """Note what a user changed about a job that has been started."""
        self.known[known.job.id] = known
        placed = self.scheduler.placed.get(known.job.id)
        if placed is None:
            return
        request, moved_s = self.request(known), placed.moved_s
        if request.max_workers > placed.request.max_workers:
            # Somebody has scaled it up, and does not want to wait.
            moved_s = self.scheduler.changed_s = float("-inf")
        pausing = known.job.wanted in GIVING_WAY
        self.put(replace(placed, request=request, pausing=pausing, moved_s=moved_s))

    def place_again(
        self, known: KnownJob, attempt: StoredAttempt, target: Sequence[AttemptShare] | None
    ) -> None:
        """Note what a job holds that was started before, and what it was told to give up."""
        placed = placed_of(self.request(known), attempt, pausing=known.job.wanted in GIVING_WAY)
        if target is not None:
            placed = replace(placed, leaving=merged(placed.allocation, allocation_of(target), -1))
        self.known[known.job.id] = known
        self.put(placed)

    def put(self, placed: Placed) -> None:
        """Note what a job holds."""
        self.scheduler.put(placed)
        self.note_change()

    def forget(self, job_id: int) -> None:
        """Note that a job has ended, or is gone."""
        self.known.pop(job_id, None)
        self.free(job_id)

    def free(self, job_id: int) -> None:
        """Note that a job holds nothing and does not wait."""
        self.scheduler.remove(job_id, now_s())
        self.note_change()

    def request(self, known: KnownJob) -> JobRequest:
        """Return a job as the scheduler is asked for it; hosts to avoid are used where no others are left."""
        request = request_of(known)
        if request.demand.avoid and not self.scheduler.can_ever_run(request):
            return without_avoiding(request)
        return request

    def shares(
        self,
        allocation: Allocation,
        per_worker: Resources,
        running: Iterable[RunningAttempt],
        before: Sequence[AttemptShare] = (),
    ) -> tuple[AttemptShare, ...]:
        """Return the processors and accelerators for a job, beside those of the others."""
        holdings: dict[str, list[tuple[AttemptShare, Resources]]] = {}
        own = {share.host: share for share in before}
        for other in running:
            each = needs_of(other.known.resolved)
            for share in other.attempt.shares:
                if own.get(share.host) is not share:
                    holdings.setdefault(share.host, []).append((share, each))
        topologies = {name: host.topology for name, host in self.hosts.items() if host.topology is not None}
        return share_out(allocation, per_worker, topologies, holdings, before)

    # -- decisions and answers --------------------------------------------------------------------

    def decide(self) -> Decision:
        """Return what to do now."""
        self.changed = False
        self.decided_s = now_s()
        self._decision, self._explanations = self.scheduler.decide(self.decided_s), None
        return self._decision

    def reason(self, job_id: int) -> Reason | None:
        """Return why a job waits; None if it does not, or nothing has been decided yet."""
        known = self.known.get(job_id)
        if known is None or self._decision is None or job_id not in self.scheduler.queue.jobs:
            return None
        lost = known.never_unblocked
        if lost and known.job.state != "held":
            named = ", ".join(f"job {other}" for other in lost)
            return Reason("dependency", f"{named} did not complete; retry it, or stop this one", None, None)
        if self._explanations is None:
            self._explanations = Explanations(self.scheduler, self._decision, self.decided_s)
        return self._explanations.reason(job_id)

    def reasons(self) -> Mapping[int, Reason]:
        """Return why each waiting job waits."""
        found = {job_id: self.reason(job_id) for job_id in self.scheduler.queue.jobs}
        return {job_id: reason for job_id, reason in found.items() if reason is not None}

    def used(self) -> dict[str, Resources]:
        """Return what jobs hold of each host."""
        used: dict[str, Resources] = {}
        for placed in self.scheduler.placed.values():
            each = placed.request.demand.per_worker
            for host, workers in placed.allocation:
                before = used.get(host, Resources())
                used[host] = Resources(
                    before.cpus + workers * each.cpus,
                    before.memory_bytes + workers * each.memory_bytes,
                    before.gpus + workers * each.gpus,
                )
        return used
