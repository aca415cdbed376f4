"""Copies of the newest commit, pure: which worker may be ended without the loss of steps that are permanent.

Every member holds the state of the last step that it committed, or was healed with. While several members hold it,
each of them can be replaced; whoever holds it alone is the run.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.elastic.membership.reports import WorkerReport

# Seconds without progress after which even the only holder of a commit is ended, if there is a checkpoint.
SPARED_S = 300.0


def may_end(worker: str, reports: Iterable[WorkerReport], *, idle_s: float, saved: bool) -> bool:
    """Return whether a worker without progress for `idle_s` may be ended by its agent.

    `reports` are those on all workers that are there, on all hosts; `saved`: there is a checkpoint. Of several holders
    that make no progress the one with the most recent progress stays, so that agents which do not hear of each other's
    decisions in time never end the last two at once.
    """
    known = {report.worker: report for report in reports}
    own = known.get(worker)
    if own is None or own.commit == 0 or (saved and idle_s > SPARED_S):
        return True
    return any(
        other.commit >= own.commit and not other.ending and (other.idle_s, name) < (own.idle_s, worker)
        for name, other in known.items()
        if name != worker
    )
