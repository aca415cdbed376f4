"""The settings of the service's scheduling: where its data is, and how patient it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from weft.jobs.scheduler.model import Policy

JobsAs = Literal["service", "users"]  # as whom jobs run: all as the service, or each as its submitter


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """The settings of one service."""

    folder: Path  # DATA: jobs, blobs, the database
    policy: Policy = field(default_factory=Policy)
    tick_s: float = 1.0  # between two looks when nothing is told
    lease_s: float = 5.0  # after which another service takes over the scheduling
    stop_grace_s: float = 10.0  # from asking a stopped job's workers to end until they are ended
    pause_grace_s: float = 60.0  # the same for a paused job, which saves a checkpoint meanwhile
    kill_after_s: float = 20.0  # from then until the launcher itself is ended
    look_at_hosts_s: float = 30.0  # between two looks at other hosts
    usage_half_life_s: float = 86400.0  # after which use of the cluster counts half
    account_s: float = 10.0  # between two additions to what users have used
    low_disk_bytes: int = 256 << 20  # below which the service says that its disk is full
    this_host: bool = True  # this machine takes jobs
    jobs_as: JobsAs = "service"

    def job_folder(self, job_id: int) -> Path:
        """Return the folder of everything that belongs to a job."""
        return self.folder / "jobs" / str(job_id)

    def attempt_folder(self, job_id: int, attempt: int) -> Path:
        """Return the folder of one attempt: code, run directory, launcher.log, outputs."""
        return self.job_folder(job_id) / f"attempt-{attempt}"
