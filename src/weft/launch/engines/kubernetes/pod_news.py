"""News of pods for the person who waits for them; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Data = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
_FAILURES = (
    "batch.kubernetes.io/job-index-failure-count",
    "batch.kubernetes.io/job-index-ignored-failure-count",
)
SECOND = len("2026-01-01T00:00:00")  # the characters of a time up to its second
TOLD_TO_END = 143  # the exit code of a container that ended by SIGTERM
_OURS = frozenset({"worker", "node"})  # the names of the one container of a pod; others may be put beside it
# Reasons for which a container waits that pass without anybody doing anything.
_PASSING = frozenset({"ContainerCreating", "PodInitializing", ""})


def index_of(pod: Data) -> int | None:
    """Return the index of a pod in its Job."""
    metadata = pod["metadata"]
    text = metadata.get("annotations", {}).get(INDEX) or metadata.get("labels", {}).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def age_of(pod: Data) -> tuple[str, list[int]]:
    """Return a value that sorts pods of one index by their age, which whole seconds alone do not tell."""
    annotations = pod["metadata"].get("annotations", {})
    failures = [int(annotations.get(name, "0")) for name in _FAILURES]  # those before this pod
    return str(pod["metadata"].get("creationTimestamp", "")), failures


def is_of(pod: Data, job_uid: str) -> bool:
    """Return whether a pod is one of a Job's."""
    return any(owner["uid"] == job_uid for owner in pod["metadata"].get("ownerReferences", ()))


def grace_of(pod: Data) -> float:
    """Return the seconds that a pod has to end once it is asked to."""
    return float(pod.get("spec", {}).get("terminationGracePeriodSeconds", 30))


def _containers(status: Data) -> list[Data]:
    """Return what is known of our container; a mesh or a monitor may have put another one beside it."""
    states = list(status.get("containerStatuses", ()))
    return [state for state in states if state.get("name") in _OURS] or states


def why_pending(pod: Data) -> str:
    """Return why a pod does not run yet, in one line; nothing if it does, or soon will."""
    status = pod.get("status", {})
    if status.get("phase") not in (None, "Pending"):
        return ""
    for state in (*status.get("initContainerStatuses", ()), *_containers(status)):
        waiting = state.get("state", {}).get("waiting") or {}
        if waiting.get("reason", "") not in _PASSING:
            return _line(waiting["reason"], waiting.get("message", ""))
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _line(condition.get("reason", ""), condition.get("message", ""))
    return ""


def why_leaving(pod: Data) -> str:
    """Return why the cluster takes a pod away, in one line; nothing while it does not, or where we have told it to."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return _line(condition.get("reason", ""), condition.get("message", ""))
    return ""


def is_waiting(pod: Data) -> bool:
    """Return whether a pod waits for something that its own status does not name: a volume, say."""
    return pod.get("status", {}).get("phase") in (None, "Pending") and not why_pending(pod)


def _line(reason: str, message: str) -> str:
    text = " ".join(message.split())
    return f"{reason}: {text[:300]}" if text else reason


def terminated(pod: Data) -> Data | None:
    """Return how the container of a pod ended; None while it has not."""
    status = pod.get("status", {})
    ended = _first_ended(_containers(status))
    if ended is None and status.get("phase") == "Succeeded":  # whoever runs it need not tell of containers
        return {"exitCode": 0, "reason": "Completed"}
    if status.get("phase") != "Failed":
        return ended
    if "reason" in status:  # evicted, or its node is lost, which the container does not know
        cause = {"reason": status["reason"], "message": status.get("message", "")}
        return {"exitCode": 1, **(ended or {}), **cause}
    if ended is not None:
        return ended
    before = [one for one in status.get("initContainerStatuses", ()) if _exit_code(one)]
    if before:  # ours has never begun
        name, code = before[0].get("name", ""), _exit_code(before[0])
        return {"exitCode": code, "reason": "Init", "message": f"the container {name}, which runs before it"}
    return {"exitCode": 1, "reason": "Failed", "message": status.get("message", "")}


def _first_ended(states: Iterable[Data]) -> Data | None:
    found: list[Data] = [
        ended for one in states if (ended := one.get("state", {}).get("terminated")) is not None
    ]
    return found[0] if found else None


def _exit_code(state: Data) -> int:
    return int((_first_ended([state]) or {}).get("exitCode", 0))


def first_failed(pods: Iterable[Data]) -> Data | None:
    """Return the pod that failed first by itself; those that a failed Job tells to end do not count."""
    failed = [
        pod for pod in pods if (ended := terminated(pod)) and ended.get("exitCode", 1) not in (0, TOLD_TO_END)
    ]
    return min(failed, key=lambda pod: str((terminated(pod) or {}).get("finishedAt", "")), default=None)


def first_pods(pods: Iterable[Data]) -> list[Data]:
    """Return the first pods of a run, the oldest first, but for those that leave while another takes their place.

    A pod on a lost node may be on its way out for ever, and what it tells no longer counts.
    """
    leaders = sorted(
        (pod for pod in pods if index_of(pod) == 0), key=lambda pod: (age_of(pod), not is_leaving(pod))
    )
    return [
        pod for pod in leaders if pod is leaders[-1] or terminated(pod) is not None or not is_leaving(pod)
    ]


def is_leaving(pod: Data) -> bool:
    """Return whether a pod is on its way out."""
    return "deletionTimestamp" in pod["metadata"]


def newest_of_each(pods: Iterable[Data]) -> list[Data]:
    """Return the newest pod of each index: those before it were replaced."""
    newest = {index_of(pod): pod for pod in sorted(pods, key=age_of)}
    return list(newest.values())


def has_started(pod: Data) -> bool:
    """Return whether the container of a pod has a log."""
    states = [state.get("state", {}) for state in _containers(pod.get("status", {}))]
    return any("running" in state or "terminated" in state for state in states)


def describe_end(ended: Data) -> str:
    """Return how a container ended, in words."""
    code, reason = ended.get("exitCode", 1), ended.get("reason", "")
    text = " ".join(str(ended.get("message", "")).split())[-300:]
    if reason == "OOMKilled":
        return "out of memory: it held more than its limit; raise `resources: {memory: ...}`"
    words = f"exit code {code}" if reason in ("", "Error", "Completed") else f"{reason} (exit code {code})"
    return f"{words}: {text}" if text and reason not in ("", "Error") else words


def runs_beside(pod: Data) -> list[str]:
    """Return the containers that run on though ours has ended, by which the cluster takes the pod for alive."""
    status = pod.get("status", {})
    if status.get("phase") != "Running" or terminated(pod) is None:
        return []
    states = status.get("containerStatuses", ())
    return [state["name"] for state in states if "running" in state.get("state", {})]


def has_given_up(job: Data | None) -> bool:
    """Return whether a Job makes no first pod any more; where failures count for each index, the others may go on."""
    failed = str((job or {}).get("status", {}).get("failedIndexes") or "")
    return re.match(r"0(?!\d)", failed) is not None


def maker_end(item: Data) -> str | None:
    """Return why a JobSet, a TrainJob or an AppWrapper is over; None while it may still make a Job."""
    status = item.get("status", {})
    for condition in status.get("conditions", ()):
        if condition.get("status") == "True" and condition.get("type") in ("Completed", "Complete"):
            return "Complete"
        if condition.get("status") == "True" and condition.get("type") == "Failed":
            return _line(condition.get("reason", "Failed"), condition.get("message", ""))
    return {"Succeeded": "Complete", "Failed": "Failed"}.get(str(status.get("phase")))


def queue_of(item: Data) -> str | None:
    """Return the queue of Kueue that an object waits in, if it names one."""
    queue: str | None = item["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name")
    return queue


def workload_events(events: Iterable[Data], item: Data) -> list[Data]:
    """Return the events about the Workload that Kueue has made of an object, and not those of an earlier one."""
    metadata = item["metadata"]
    prefix = f"{item['kind'].lower()}-{metadata['name']}-"
    since = metadata.get("creationTimestamp", "")[:SECOND]
    return [
        event
        for event in events
        if str(event.get("involvedObject", {}).get("name", "")).startswith(prefix)
        and _time_of(event)[:SECOND] >= since
    ]


def job_end(job: Data | None) -> str | None:
    """Return why a Job is over, `Complete` if it has succeeded; None while it goes on.

    How it will end is told first, and that it has ended once all its pods have: the first is enough.
    """
    if job is None:
        return "it was deleted"
    for condition in job.get("status", {}).get("conditions", ()):
        if condition.get("status") != "True":
            continue
        if condition.get("type") in ("SuccessCriteriaMet", "Complete"):
            return "Complete"
        if condition.get("type") in ("FailureTarget", "Failed"):
            return _line(condition.get("reason", "Failed"), condition.get("message", ""))
    return None


def warnings_in(events: Iterable[Data]) -> list[str]:
    """Return what the events about an object warn of, the newest last, each in one line."""
    return [
        _line(str(event.get("reason", "")), str(event.get("message", "")))
        for event in sorted(events, key=_time_of)
        if event.get("type") == "Warning"
    ]


def _time_of(event: Data) -> str:
    """Return when an event was seen last; clusters tell it in one of several fields."""
    series = event.get("series") or {}
    time = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(time or event.get("metadata", {}).get("creationTimestamp") or "")
