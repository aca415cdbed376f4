"""The end of a run as it is seen from outside, whatever is known of it by then, and in whatever order it came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weft.launch.engines.kubernetes.ending import RunEvidence, is_over, outcome_of
from weft.launch.engines.kubernetes.objects.names import PodNames
from weft.launch.engines.kubernetes.pod_news import TOLD_TO_END, first_pods

Data = dict[str, Any]
NAMES = PodNames("train", "job")
FOR_GOOD_S = 1e6


def pod(index: int, code: int | None, *, number: int = 0) -> Data:
    """Return a pod whose container runs, or has ended with a code; `number`: of the pods of this index before it."""
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": "Error"}}
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    key = "batch.kubernetes.io/job-completion-index"
    return {
        "metadata": {
            "name": f"train-{index}-{number}",
            "uid": f"{index}-{number}",
            "creationTimestamp": f"2026-11-19T00:00:0{number}Z",
            "annotations": {key: str(index)},
        },
        "spec": {"terminationGracePeriodSeconds": 10},
        "status": {"phase": phase, "containerStatuses": [{"name": "worker", "state": state}]},
    }


def told_of(code: int, by: str | None = None) -> Data:
    """Return the outcome in the words of a first pod whose rank 1 may have failed."""
    failure = None
    if code and by is None:
        failure = {
            "rank": 1,
            "host": "train-1",
            "code": code,
            "reason": "bad",
            "traceback": None,
            "log": None,
        }
    return {
        "code": code,
        "codes": {"0": 0, "1": code},
        "seconds": 1.0,
        "failure": failure,
        "interrupted_by": by,
    }


@dataclass(frozen=True)
class Ending:
    """How a run truly ends: the codes of its pods, and what the first one tells, if it gets to it."""

    first: int
    second: int
    told: Data | None

    @property
    def failed(self) -> bool:
        return self.first != 0 or self.second not in (0, TOLD_TO_END)


ENDINGS = [
    Ending(0, 0, told_of(0)),
    Ending(0, 0, None),  # its log was lost
    Ending(1, 1, told_of(1)),  # a rank has failed, and both pods tell so
    Ending(3, 1, told_of(3)),
    Ending(137, TOLD_TO_END, None),  # the first pod was killed
    Ending(TOLD_TO_END, 137, None),  # the second one was, and the Job told the first one to end
    Ending(TOLD_TO_END, 137, told_of(TOLD_TO_END, "SIGTERM")),
    Ending(0, 1, None),
]
NEWS = (
    "told",
    "log read",
    "first ended",
    "first gone",
    "second ended",
    "second gone",
    "job over",
    "job gone",
)


def seen(ending: Ending, news: list[str], *, elastic: bool) -> RunEvidence:
    """Return what is known after some news."""
    pods: dict[str, Data] = {}
    for index, code, name in ((0, ending.first, "first"), (1, ending.second, "second")):
        if f"{name} gone" not in news:
            one = pod(index, code if f"{name} ended" in news else None)
            pods[one["metadata"]["name"]] = one
    reads = "log read" not in news
    ended = None
    # As the follower has it: the end of a pod counts once its log is read, also after the pod has gone.
    if "first ended" in news and not reads:
        ended = {"exitCode": ending.first, "reason": "Error"}
    whole = "Complete" if not ending.failed else "BackoffLimitExceeded: Job has reached the limit"
    why = "it was deleted" if "job gone" in news else whole if "job over" in news else None
    told = ending.told if "told" in news else None
    return RunEvidence(pods=pods, ended=ended, why=why, told=told, elastic=elastic, reads_log=reads)


@given(st.sampled_from(ENDINGS), st.permutations(NEWS), st.booleans(), st.sampled_from([0.0, FOR_GOOD_S]))
def test_a_run_with_a_failed_rank_never_ends_with_0(
    ending: Ending, order: list[str], elastic: bool, waited_s: float
) -> None:
    """Whatever comes first, and whatever never comes; and a run that goes well fails by nothing but its deletion."""
    if elastic and ending.first == 0:  # it goes on without other pods
        ending = replace(ending, second=0)
    if (
        waited_s and ending.first == 0
    ):  # its exit code is that of all ranks, if nobody says otherwise for long
        ending = replace(ending, second=0)
    for count in range(len(order) + 1):
        facts = seen(ending, list(order[:count]), elastic=elastic)
        if is_over(facts, waited_s):
            outcome = outcome_of(facts, NAMES, seconds=1.0, run_dir=None)
            if ending.failed:
                assert outcome.code != 0, facts
                assert outcome.failure is not None or outcome.interrupted_by is not None
            elif facts.why != "it was deleted" or facts.told is not None:
                assert outcome.code == 0, facts
    facts = seen(ending, list(NEWS[:-1]), elastic=elastic)
    assert is_over(facts, FOR_GOOD_S)  # once all is known


def test_a_first_pod_that_leaves_counts_until_another_one_is_there() -> None:
    failed, drained, new = pod(0, 1), pod(0, None, number=1), pod(0, None, number=2)
    drained["metadata"]["deletionTimestamp"] = "2026-11-19T00:01:00Z"
    assert first_pods([drained, failed]) == [failed, drained]
    assert first_pods([new, drained, failed]) == [failed, new]


def test_a_pod_that_was_replaced_does_not_count_against_a_run_that_went_well() -> None:
    pods = {one["metadata"]["name"]: one for one in (pod(0, 0), pod(1, 137), pod(1, 0, number=1))}
    facts = RunEvidence(pods=pods, ended={"exitCode": 0})
    assert outcome_of(facts, NAMES, seconds=1.0, run_dir=None).code == 0


def test_a_first_pod_that_ends_well_without_a_word_does_not_hide_another_ones_failure() -> None:
    pods = {one["metadata"]["name"]: one for one in (pod(0, 0), pod(1, 9))}
    outcome = outcome_of(RunEvidence(pods=pods, ended={"exitCode": 0}), NAMES, seconds=1.0, run_dir=None)
    assert outcome.code == 1
    assert outcome.failure is not None
    assert (outcome.failure.host, outcome.failure.reason) == ("train-1", "exit code 9")
