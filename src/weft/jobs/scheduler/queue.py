"""The waiting jobs, grouped so that a decision looks at few of them.

Jobs with equal demands, equal minimum size and equal time limit have the same need: if there is no room for one of
them, there is none for the others. Within a need, the jobs of one user form a group, whose order never changes, because
all jobs age at the same rate:

    score = priority + age_points_per_hour * hours waited - share_points * (share of the user)
          = standing - share_points * (share of the user) + a number that is the same for all jobs
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from weft.jobs.scheduler.model import Demand, JobRequest, Policy

Need = tuple[Demand, int, float]  # what one worker takes, the fewest workers, seconds at most
Entry = tuple[
    float, int, JobRequest
]  # standing with its sign changed, so that the best job is first; id; the job


def standing(policy: Policy, job: JobRequest) -> float:
    """Return the part of a job's score that never changes."""
    return job.priority - policy.age_points_per_hour * job.submitted_s / 3600


class WaitingQueue:
    """All jobs that wait, by need and user; `later` holds those that may not start yet, whatever is free."""

    def __init__(self, policy: Policy, jobs: Iterable[JobRequest] = ()) -> None:
        self._policy = policy
        self.jobs: dict[int, JobRequest] = {}
        self.needs: dict[Need, dict[str, list[Entry]]] = {}  # the group of each user, best job first
        self.later: dict[int, JobRequest] = {}
        self.extend(jobs)

    def extend(self, jobs: Iterable[JobRequest]) -> None:
        """Add many jobs: each group is put in order once."""
        age = self._policy.age_points_per_hour
        groups: dict[tuple[Demand, int, float, str], list[Entry]] = {}
        for job in jobs:
            self.jobs[job.id] = job
            if job.held or job.blocked_by or job.not_before_s > job.submitted_s:
                self.later[job.id] = job
                continue
            entry = -(job.priority - age * job.submitted_s / 3600), job.id, job  # as `standing` has it
            key = job.demand, job.min_workers, job.time_limit_s, job.user
            group = groups.get(key)
            if group is None:
                group = groups[key] = self.needs.setdefault(need_of(job), {}).setdefault(job.user, [])
            group.append(entry)
        for group in groups.values():
            group.sort()

    def add(self, job: JobRequest) -> None:
        self.jobs[job.id] = job
        if job.held or job.blocked_by or job.not_before_s > job.submitted_s:
            self.later[job.id] = job
        else:
            insort(self.needs.setdefault(need_of(job), {}).setdefault(job.user, []), self._entry(job))

    def remove(self, job_id: int) -> None:
        job = self.jobs.pop(job_id)
        if self.later.pop(job_id, None) is not None:
            return
        need = need_of(job)
        group = self.needs[need][job.user]
        del group[bisect_left(group, self._entry(job))]
        if not group:
            del self.needs[need][job.user]
            if not self.needs[need]:
                del self.needs[need]

    def due(self, now_s: float) -> Iterator[Entry]:
        """Yield the jobs whose time to start at the earliest has come."""
        for job in self.later.values():
            if not job.held and not job.blocked_by and job.not_before_s <= now_s:
                yield self._entry(job)

    def _entry(self, job: JobRequest) -> Entry:
        return -standing(self._policy, job), job.id, job


def need_of(job: JobRequest) -> Need:
    return job.demand, job.min_workers, job.time_limit_s
