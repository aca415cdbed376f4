"""The lease of a run on its client: a run that is followed ends when nobody follows it any more.

Nothing in the pods knows of the client. So the Job itself gets a deadline, which the client moves on while it is there:
the Job controller ends a run whose client has died, and removes what is left of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError

Data = dict[str, Any]
RENEWALS = 6  # within the time after which a client counts as dead


def lease_change(job: Data, *, client_s: int, deadline_s: int | None, now_s: float) -> Data:
    """Return the change of a Job by which it goes on for so many seconds from now, but not beyond its own deadline."""
    started = job.get("status", {}).get("startTime")
    ran_s = max(0, round(now_s - datetime.fromisoformat(started).timestamp())) if started else 0
    until = ran_s + client_s
    return {
        "spec": {
            "activeDeadlineSeconds": until if deadline_s is None else min(until, deadline_s),
            "ttlSecondsAfterFinished": client_s,
        }
    }


@dataclass
class JobLease:
    """The lease of one run."""

    client_s: int  # after which a client that does not move the deadline counts as dead
    deadline_s: int | None  # of the run itself
    _next: float = 0.0

    def renew(self, api: ClusterApi, job: Data, say_once: Callable[[str, str], None]) -> None:
        """Move the deadline of the Job on, if it is time to."""
        if time.monotonic() < self._next:
            return
        change = lease_change(job, client_s=self.client_s, deadline_s=self.deadline_s, now_s=api.now_s)
        try:
            api.patch(job, change)
        except ClusterError as error:
            say_once("lease", f"weft: without this client the run would go on: {error}")
        self._next = time.monotonic() + self.client_s / RENEWALS
