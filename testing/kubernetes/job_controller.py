"""The Job controller of our own cluster: pods of Indexed Jobs, their failures and successes, deadlines, suspension.

Which rule ends a Job is decided in `rules/job_rules.py`; the controllers of JobSets and AppWrappers make Jobs as well.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
import uuid
from collections.abc import Callable

from testing.kubernetes.admission import ClusterAdmission
from testing.kubernetes.faults import ClusterFaults
from testing.kubernetes.objects import (
    FAILURES,
    INDEX,
    JOB_NAME,
    TERMINAL,
    TRACKING,
    Data,
    conditions_of,
    has_ended,
    index_of,
    is_finished,
    now,
    phase_of,
    seconds_of,
    time_text,
)
from testing.kubernetes.rules.job_rules import why_failed
from testing.kubernetes.rules.validation import restricted_problems
from testing.kubernetes.store import ObjectStore


class JobController:
    """Has each Job have the pods that it wants; `run_pod` starts one that has found a node.

    Its methods are called by whoever holds the store.
    """

    def __init__(self, store: ObjectStore, admission: ClusterAdmission, faults: ClusterFaults) -> None:
        self._store, self._admission, self._faults = store, admission, faults
        self._ends: dict[str, dict[int, list[str]]] = {}  # phases of ended pods, by Job and index
        self._timers: list[threading.Timer] = []
        self.run_pod: Callable[[Data, int], None] = lambda pod, index: None

    def close(self) -> None:
        """Wait for nothing any more."""
        for timer in self._timers:
            timer.cancel()

    def control(self, job: Data) -> None:
        """Bring a Job and its pods closer to what it wants."""
        spec = job["spec"]
        pods = self._pods_of(job)
        if conditions_of(job):  # over, once its pods are
            if all(map(has_ended, pods)):
                last = conditions_of(job)[-1]
                self._add_condition(job, TERMINAL[last["type"]], last["reason"])
            return
        if spec.get("suspend"):
            self._take_out(job, pods)
            return
        if "startTime" not in job.get("status", {}):
            job = self._with_status(job, {"startTime": now()})
        if "activeDeadlineSeconds" in spec and self._is_late(job):
            self._finish(job, "FailureTarget", "DeadlineExceeded")
            return
        ends = self._ends.setdefault(job["metadata"]["uid"], {})
        for index in [index for index in ends if index >= spec["completions"]]:
            del ends[index]
        done = {index for index, phases in ends.items() if "Succeeded" in phases}
        wanted = [int(rule["succeededIndexes"]) for rule in spec.get("successPolicy", {}).get("rules", ())]
        if done >= set(wanted or range(spec["completions"])):
            self._finish(job, "SuccessCriteriaMet", "SuccessPolicy" if wanted else "CompletionsReached")
            return
        job, failed = self._note_failed_indexes(job, ends)
        if (why := why_failed(spec, ends, failed, done)) is not None:
            self._finish(job, "FailureTarget", why)
            return
        self._match_pods(job, pods, done | failed)

    def _match_pods(self, job: Data, pods: list[Data], settled: set[int]) -> None:
        """Make the pods that are missing, and end those of indexes that are no more wanted."""
        spec, by_index = job["spec"], dict[int, list[Data]]()
        for pod in pods:
            by_index.setdefault(index_of(pod), []).append(pod)
        early = spec.get("podReplacementPolicy", "TerminatingOrFailed") == "TerminatingOrFailed"
        for index in range(spec["completions"]):
            some = by_index.get(index, [])
            leaving = [pod for pod in some if "deletionTimestamp" in pod["metadata"] and not has_ended(pod)]
            alive = [pod for pod in some if not has_ended(pod) and pod not in leaving]
            if index not in settled and not alive and (early or not leaving):
                self._make_pod(job, index)
        for index, some in by_index.items():
            if index >= spec["completions"]:
                for pod in some:
                    self._admission.remove("pods", pod)

    def count_end(self, pod: Data) -> None:
        """Count the end of a pod for its Job, which keeps it until then: also that of one that was deleted."""
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        self._ends.setdefault(owner, {}).setdefault(index_of(pod), []).append(phase_of(pod))

    def hasten(self, seconds: float) -> None:
        """Let time go by for the deadlines of Jobs, and for those that are kept after their end."""
        for job in self._store.of_kind("jobs"):
            if is_finished(job):
                if job["spec"].get("ttlSecondsAfterFinished", seconds) < seconds:
                    self._remove_if_there(job)
                continue
            started = seconds_of(job["status"]["startTime"]) - seconds
            self._with_status(job, {"startTime": time_text(started)})

    # -- Jobs -------------------------------------------------------------------------------------

    def _pods_of(self, job: Data) -> list[Data]:
        name = job["metadata"]["name"]
        return [pod for pod in self._store.of_kind("pods") if pod["metadata"]["labels"].get(JOB_NAME) == name]

    def _take_out(self, job: Data, pods: list[Data]) -> None:
        """End the pods of a Job that is suspended: they count as no failures, and its time begins anew with it."""
        if "startTime" in job.get("status", {}):
            job = copy.deepcopy(job)
            del job["status"]["startTime"]
            self._store.put("MODIFIED", "jobs", job)
        for pod in pods:
            if not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]:
                pod = copy.deepcopy(pod)
                pod["metadata"].pop("finalizers", None)
                self._admission.remove("pods", pod)

    def _note_failed_indexes(self, job: Data, ends: dict[int, list[str]]) -> tuple[Data, set[int]]:
        """Note the indexes that get no other pod, as they have failed too often; return the Job, and them."""
        if (limit := job["spec"].get("backoffLimitPerIndex")) is None:
            return job, set()
        failed = {index for index, phases in ends.items() if phases.count("Failed") > limit}
        told = ",".join(map(str, sorted(failed)))
        if job["status"].get("failedIndexes", "") != told:
            job = self._with_status(job, {"failedIndexes": told})
        return job, failed

    def _finish(self, job: Data, condition: str, reason: str) -> None:
        """Note how a Job will end, and end its pods: it is over when they are."""
        self._add_condition(job, condition, reason)
        for pod in self._pods_of(job):
            if not has_ended(pod):
                self._admission.remove("pods", pod)
        self._admission.control()

    def _add_condition(self, job: Data, condition: str, reason: str) -> None:
        job = copy.deepcopy(job)
        told = {"type": condition, "status": "True", "reason": reason, "message": ""}
        job = self._with_status(job, {"conditions": [*conditions_of(job), told]})
        if is_finished(job) and (keep_s := job["spec"].get("ttlSecondsAfterFinished")) is not None:
            self._later(keep_s, lambda: self._remove_if_there(job))

    def _with_status(self, job: Data, status: Data) -> Data:
        """Note something about a Job; return it as it is then."""
        job = copy.deepcopy(job)
        job["status"] = {**job.get("status", {}), **status}
        self._store.put("MODIFIED", "jobs", job)
        return job

    def _is_late(self, job: Data) -> bool:
        """Return whether a Job has run for longer than it may; if not, look again when it has."""
        ran_s = time.time() - seconds_of(job["status"]["startTime"])
        left_s = float(job["spec"]["activeDeadlineSeconds"]) - ran_s
        if left_s > 0:
            self._later(left_s, self._admission.control)
        return left_s <= 0

    def _later(self, seconds: float, then: Callable[[], None]) -> None:
        def locked() -> None:
            with self._store.changed:
                then()

        timer = threading.Timer(seconds, locked)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _remove_if_there(self, job: Data) -> None:
        known = self._store.find("jobs", job["metadata"]["namespace"], job["metadata"]["name"])
        if known is not None and known["metadata"]["uid"] == job["metadata"]["uid"]:
            self._admission.remove("jobs", known)

    # -- pods -------------------------------------------------------------------------------------

    def _make_pod(self, job: Data, index: int) -> None:
        if (why := self._why_no_pod(job, index)) is not None:
            self._warn("Job", job, "FailedCreate", why)
            return
        pod = self._new_pod(job, index)
        self._store.put("ADDED", "pods", pod)
        if index not in self._faults.unschedulable:
            self.run_pod(pod, index)
        else:
            self._warn("Pod", pod, "FailedScheduling", pod["status"]["conditions"][0]["message"])

    def _why_no_pod(self, job: Data, index: int) -> str | None:
        """Return why the server refuses a pod of a Job."""
        begins = f'Error creating: pods "{job["metadata"]["name"]}-{index}-" is forbidden'
        if wrong := restricted_problems(job["spec"]["template"]["spec"]):
            return f'{begins}: violates PodSecurity "restricted:latest": {", ".join(wrong)}'
        most = self._faults.quota
        if most is not None and len(self._pods_of(job)) >= most:
            return f"{begins}: exceeded quota: compute, requested: pods=1, used: pods={most}, limited: pods={most}"
        return None

    def _new_pod(self, job: Data, index: int) -> Data:
        template, name = job["spec"]["template"], job["metadata"]["name"]
        metadata = {
            "name": f"{name}-{index}-{secrets.token_hex(3)[:5]}",
            "namespace": job["metadata"]["namespace"],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": now(),
            "labels": {**template["metadata"].get("labels", {}), JOB_NAME: name, INDEX: str(index)},
            "annotations": {
                **template["metadata"].get("annotations", {}),
                INDEX: str(index),
                **self._failures_of(job, index),
            },
            "finalizers": [TRACKING],
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
            ],
        }
        status: Data = {"phase": "Pending"}
        if index in self._faults.unschedulable:
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            }
            status = {"phase": "Pending", "conditions": [condition]}
        spec = {**copy.deepcopy(template["spec"]), "hostname": f"{name}-{index}"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def _failures_of(self, job: Data, index: int) -> dict[str, str]:
        """Return the annotation by which a Job with a limit for each index counts the failures of one."""
        if "backoffLimitPerIndex" not in job["spec"]:
            return {}
        ends = self._ends.get(job["metadata"]["uid"], {}).get(index, [])
        return {FAILURES: str(ends.count("Failed"))}

    def _warn(self, kind: str, item: Data, reason: str, message: str) -> None:
        """Tell something about an object by an event."""
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        event: Data = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{reason.lower()}", "namespace": namespace},
            "involvedObject": {"kind": kind, "name": name, "uid": item["metadata"]["uid"]},
            "type": "Warning",
            "reason": reason,
            "message": message,
        }
        if self._store.find("events", namespace, event["metadata"]["name"]) is None:
            event["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
            self._store.put("ADDED", "events", event)
