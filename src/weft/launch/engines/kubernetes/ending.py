"""The end of a run as it is seen from outside: whether it is over, and how it ended; pure.

What is known comes over several connections, none of which waits for another: the first pod's own words, how its
container ended, what the Job tells, the other pods. Any of it may come late, in any order, or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weft.launch.control.outcome import Failure, Outcome, log_path
from weft.launch.engines.kubernetes.objects.names import PodNames
from weft.launch.engines.kubernetes.pod_news import (
    TOLD_TO_END,
    describe_end,
    first_failed,
    first_pods,
    grace_of,
    has_started,
    index_of,
    newest_of_each,
    runs_beside,
    terminated,
)

Data = dict[str, Any]
COMPLETE = "Complete"  # why a Job is over that has succeeded
GONE_S = 15.0  # for a Job that is over to tell so, once its first pod has ended
_SIGNALS = {2: "SIGINT", 15: "SIGTERM"}


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """The evidence of how a run goes or ended that is there at one moment."""

    pods: Mapping[str, Data] = field(default_factory=dict)  # of its Job
    ended: Data | None = None  # how the container of the newest first pod ended, once its log is read
    why: str | None = None  # why the Job is over
    told: Data | None = None  # the outcome, in the words of the first pod
    elastic: bool = False
    interrupted: int | None = None  # the signal by which the run was ended from here
    reads_log: bool = False  # of the newest first pod


def is_over(facts: RunEvidence, waited_s: float) -> bool:
    """Return whether nothing more will come of a run; `waited_s`: since the first sign of its end, without news."""
    ended, told = facts.ended, facts.told
    if ended is not None and ended.get("exitCode") == 0:
        # Without a word of the first pod, the Job tells whether the others have ended as well.
        return told is not None or facts.elastic or facts.why is not None or waited_s > GONE_S
    # An elastic run that has told its failure fails in another first pod as well. One that was taken away is replaced.
    if ended is not None and facts.elastic and told is not None and told.get("failure") is not None:
        return True
    if facts.why is None:
        # A container beside ours keeps the Job from seeing the end; an elastic run goes on in the other pods.
        held = any(index_of(pod) == 0 and runs_beside(pod) for pod in facts.pods.values())
        return ended is not None and held and waited_s > GONE_S and not facts.elastic
    late = waited_s > GONE_S + max(map(grace_of, facts.pods.values()), default=0)
    return ended is not None or late or not _may_tell_more(facts)


def _may_tell_more(facts: RunEvidence) -> bool:
    """Return whether a first pod may still tell something; after Ctrl-C, one that has not begun will not."""
    if facts.reads_log:
        return True
    leaders = [pod for pod in first_pods(facts.pods.values()) if terminated(pod) is None]
    return any(has_started(pod) or facts.interrupted is None for pod in leaders)


def outcome_of(facts: RunEvidence, names: PodNames, *, seconds: float, run_dir: Path | None) -> Outcome:
    """Return how a run ended. Its exit code is 0 only if something has told so, and no pod tells otherwise."""
    where = str(run_dir) if run_dir else None
    if facts.interrupted is not None:
        by = _SIGNALS.get(facts.interrupted, str(facts.interrupted))
        return Outcome(
            code=128 + facts.interrupted, codes={}, seconds=seconds, interrupted_by=by, run_dir=where
        )
    ended = facts.ended or _job_end(facts.why or "")
    doubtful = _is_doubtful(facts, ended)
    lost = first_failed(newest_of_each(facts.pods.values())) if doubtful else None
    if facts.told is not None and lost is None:
        return outcome_from(facts.told, run_dir)
    if doubtful and lost is None and facts.why is not None and ended.get("exitCode") == 0:
        ended = _job_end(facts.why)
    if lost is not None:
        index = index_of(lost)
        host = lost["metadata"]["name"] if index is None else names.host(index)
        ended, code = terminated(lost) or ended, 1
    else:
        host, code = names.host(0), int(ended.get("exitCode", 1))
    failure = Failure(rank=None, host=host, code=code or 1, reason=describe_end(ended))
    return Outcome(code=code, codes={}, seconds=seconds, failure=failure if code else None, run_dir=where)


def _is_doubtful(facts: RunEvidence, ended: Data) -> bool:
    """Return whether another pod may know better than the first one how the run ended."""
    told, code = facts.told, ended.get("exitCode")
    if code == TOLD_TO_END:  # the Job failed by another pod, and told the first one to end before it knew
        return told is None or told.get("interrupted_by") == "SIGTERM"
    return code == 0 and told is None and not facts.elastic and facts.why != COMPLETE


def _job_end(why: str) -> Data:
    return {"exitCode": 0 if why == COMPLETE else 1, "reason": "the Job is over", "message": why}


def outcome_from(told: Data, run_dir: Path | None) -> Outcome:
    """Return the outcome that the first pod wrote down, with the folders of this machine."""
    known = Outcome.__dataclass_fields__
    fields = {name: value for name, value in told.items() if name in known}
    failure = fields.pop("failure", None)
    codes = {int(rank): code for rank, code in fields.pop("codes", {}).items()}
    outcome = Outcome(**fields, codes=codes)
    if failure is not None:
        made = Failure(**failure)
        log = log_path(run_dir, made.rank) if made.rank is not None else None
        outcome = replace(outcome, failure=replace(made, log=log))
    return replace(outcome, run_dir=str(run_dir) if run_dir else None)
