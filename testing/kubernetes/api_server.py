"""A Kubernetes API server of our own for tests, with the controller of Indexed Jobs: no more than a run needs.

    with VirtualKubernetes(tmp_path) as cluster:
        shell.weft("run", "--engine", "kubernetes", ..., KUBECONFIG=cluster.kubeconfig)
        cluster.kill_pod("train-1")

It lists, watches (with resource versions, bookmarks and expiry), takes merge patches, streams logs, and makes pods of
Jobs, which a kubelet of ours runs as processes. It is as strict as a real one where we know that one: unknown fields,
content types, permissions, immutable fields, PodSecurity (`restricted`) and quota. A real one may still refuse more.
"""

from __future__ import annotations

import base64
import calendar
import copy
import json
import re
import secrets
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import yaml
from testing.kubernetes import go_yaml
from testing.kubernetes.kubelet import PodProcess, config_maps_of, expanded, variables_of
from testing.kubernetes.rules.app_wrappers import components_of, phase_of
from testing.kubernetes.rules.job_rules import why_failed
from testing.kubernetes.rules.job_sets import end_of, jobs_of
from testing.kubernetes.rules.schemas import check
from testing.kubernetes.rules.validation import problems, restricted_problems, update_problems

from weft.launch.engines.kubernetes.permissions import rules_for

Data = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
TRACKING = "batch.kubernetes.io/job-tracking"
_KINDS = {
    "jobs": ("batch/v1", "Job"),
    "jobsets": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "appwrappers": ("workload.codeflare.dev/v1beta2", "AppWrapper"),
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "secrets": ("v1", "Secret"),
    "configmaps": ("v1", "ConfigMap"),
    "events": ("v1", "Event"),
}
_FIELDS = {
    "pods": ("metadata.name", "spec.nodeName", "status.phase"),
    "events": ("involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"),
}
# What a real server calls its refusals.
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
}
_PATH = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(log|eviction))?"
)
WAIT_S = 60.0


class VirtualKubernetes:
    """One cluster. Its `requests` are kept for tests to look at, and its faults are methods."""

    def __init__(
        self, folder: Path, *, version: str = "1.34", argv: Callable[[list[str]], list[str]] | None = None
    ) -> None:
        self.folder, self._version = folder, version
        self._argv = argv or (
            lambda words: words
        )  # what stands for an image: another command for the same words
        self._objects: dict[tuple[str, str, str], Data] = {}  # by kind, namespace and name
        self._history: list[tuple[int, str, str, Data]] = []  # version, kind, what happened, the object
        self._now = 1
        self._expired = 0  # versions up to this one are forgotten
        self._epoch = 0  # streams of an earlier one end
        self._changed = threading.Condition(threading.RLock())
        self._ends: dict[str, dict[int, list[str]]] = {}  # phases of ended pods, by Job and index
        self._processes: dict[str, PodProcess] = {}  # by the pods' identities
        self._addresses = 1
        self._timers: list[threading.Timer] = []
        # Pods die with the thread that starts them, so it must stay as long as the cluster.
        self._spawner = ThreadPoolExecutor(1)
        self._hosts = folder / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n")
        self.requests: list[tuple[str, str, str]] = []  # method, path, body
        self.busy = 0  # so many requests are turned away with 429
        self.conflicts = 0  # so many changes collide with somebody else's
        self.forbidden: set[str] = set()  # kinds that nobody may touch
        self.unschedulable: set[int] = set()  # indexes of pods that find no node
        self.quota: int | None = None  # pods that a namespace may have
        self.drop_answers = 0  # to so many creations, which are carried out
        self.silent_kind = ""  # whose creations are carried out and not answered until this is another one
        self.drop_refusals = 0  # so many answers that refuse are lost
        self.rules = dict(rules_for("jobset", app_wrapper=True))  # no more than the Role that we print
        self.collects = True  # what belongs to an object that goes
        self.suspends = False  # as Kueue does with new Jobs
        self.break_logs_every: int | None = None  # lines after which the first log stream breaks
        self._broken = 0
        self.unreachable_kubelets = False  # so that no log can be read
        handler = type("Handler", (_Handler,), {"cluster": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(self._config()))

    def _config(self) -> Data:
        address = f"http://127.0.0.1:{self._server.server_port}"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "virtual",
            "contexts": [
                {"name": "virtual", "context": {"cluster": "virtual", "user": "me", "namespace": "team"}}
            ],
            "clusters": [{"name": "virtual", "cluster": {"server": address}}],
            "users": [{"name": "me", "user": {"token": "a-token"}}],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for timer in self._timers:
            timer.cancel()
        for process in list(self._processes.values()):
            process.close()
        self._spawner.shutdown()

    # -- what tests do ----------------------------------------------------------------------------

    def pod(self, index: int) -> Data:
        """Return the newest pod of an index that has not ended."""
        with self._changed:
            pods = [pod for (kind, _, _), pod in self._objects.items() if kind == "pods"]
            alive = [
                pod for pod in pods if pod["metadata"]["annotations"][INDEX] == str(index) and not _ended(pod)
            ]
            return alive[-1]

    def objects(self, kind: str) -> list[Data]:
        """Return all objects of a kind."""
        with self._changed:
            return [item for (other, _, _), item in self._objects.items() if other == kind]

    def has_none(self, kind: str) -> bool:
        """Return whether there is no object of a kind."""
        return not self.objects(kind)

    def log(self, index: int) -> str:
        """Return what the newest pod of an index has printed."""
        with self._changed:
            pods = [pod for (kind, _, _), pod in self._objects.items() if kind == "pods"]
            found = [pod for pod in pods if pod["metadata"]["annotations"][INDEX] == str(index)]
            process = self._processes.get(found[-1]["metadata"]["uid"]) if found else None
        if process is None:
            return ""
        return "\n".join(line.decode(errors="replace") for _, line in process.log.lines)

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait for something to become true of the cluster."""
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} within {WAIT_S:g} s")
            time.sleep(0.02)

    def kill_pod(self, index: int) -> None:
        """End the processes of a pod at once, as when its container is out of memory."""
        self._processes[self.pod(index)["metadata"]["uid"]].kill()

    def kill_worker(self, index: int) -> None:
        """End the worker of a pod at once, and nothing else of the pod."""
        self._processes[self.pod(index)["metadata"]["uid"]].kill_worker()

    def freeze_pod(self, index: int) -> None:
        """Have a node fall silent: the processes of its pod stop, and nobody tells."""
        self._processes[self.pod(index)["metadata"]["uid"]].freeze()

    def delete_pod(self, index: int) -> None:
        """Evict a pod, as for a node that is drained: SIGTERM, and another pod in its place."""
        told = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        with self._changed:
            pod = copy.deepcopy(self.pod(index))
            others = pod["status"].get("conditions", [])
            pod["status"]["conditions"] = [*others, {"type": "DisruptionTarget", "status": "True", **told}]
            self._put("MODIFIED", "pods", pod)
            self._remove("pods", pod)

    def hasten(self, seconds: float) -> None:
        """Let time go by for the deadlines of Jobs, and for those that are kept after their end."""
        with self._changed:
            for job in self.objects("jobs"):
                if _is_finished(job):
                    if job["spec"].get("ttlSecondsAfterFinished", seconds) < seconds:
                        self._remove_if_there(job)
                    continue
                started = _seconds(job["status"]["startTime"]) - seconds
                self._with_status(job, {"startTime": _time(started)})
            self._control()

    def restart(self) -> None:
        """Break all streams, as an API server that restarts does."""
        with self._changed:
            self._epoch += 1
            self._changed.notify_all()

    def expire(self) -> None:
        """Forget all versions, and break all streams: watches that go on get 410."""
        with self._changed:
            self._now += 1
            self._expired = self._now
            self.restart()

    # -- objects ----------------------------------------------------------------------------------

    def create(self, kind: str, namespace: str, item: Data, *, is_trial: bool = False) -> Data:
        """Take in a new object; of one on trial nothing stays."""
        with self._changed:
            name = item["metadata"]["name"]
            if (kind, namespace, name) in self._objects:
                raise ApiRefusalError(409, f'{kind} "{name}" already exists', "AlreadyExists")
            self._collide('resourcequotas "compute"')
            if item["metadata"].get("namespace", namespace) != namespace:
                raise ApiRefusalError(400, "the namespace of the object does not match the request")
            if wrong := problems(item):
                raise ApiRefusalError(422, f'{item["kind"]} "{name}" is invalid: {"; ".join(wrong)}')
            item = copy.deepcopy(item)
            item["metadata"] |= {
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": _now(),
            }
            _fill_in(item)
            if kind == "jobs" and self.suspends:
                item["spec"]["suspend"] = True
            if is_trial:
                return item
            self._put("ADDED", kind, item)
            self._control()
            return copy.deepcopy(item)

    def patch(self, kind: str, namespace: str, name: str, change: Data) -> Data:
        """Merge a change into an object."""
        with self._changed:
            before = self._get(kind, namespace, name)
            self._collide(f'{kind} "{name}"')
            item = copy.deepcopy(before)
            _merge(item, change)
            if item["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
                raise ApiRefusalError(409, f'{kind} "{name}": the object has been modified', "Conflict")
            if wrong := update_problems(before, item):
                raise ApiRefusalError(422, f'{before["kind"]} "{name}" is invalid: {"; ".join(wrong)}')
            self.check(item)
            if item == before:
                return copy.deepcopy(item)  # an empty change makes no new version
            self._put("MODIFIED", kind, item)
            self._control()
            return copy.deepcopy(item)

    def _collide(self, what: str) -> None:
        """Refuse a change as a server does whose own store was changed meanwhile."""
        if self.conflicts > 0:
            self.conflicts -= 1
            told = f"Operation cannot be fulfilled on {what}: the object has been modified"
            raise ApiRefusalError(409, told, "Conflict")

    def remove(self, kind: str, namespace: str, name: str, policy: str) -> Data:
        """Delete an object, and what belongs to it; a Job's pods stay where nobody says that they are to go."""
        with self._changed:
            item = self._get(kind, namespace, name)
            self._remove(kind, item, with_owned=kind != "jobs" or policy in ("Background", "Foreground"))
            return copy.deepcopy(item)

    def _get(self, kind: str, namespace: str, name: str) -> Data:
        try:
            return self._objects[kind, namespace, name]
        except KeyError:
            raise ApiRefusalError(404, f'{kind} "{name}" not found') from None

    def _put(self, what: str, kind: str, item: Data) -> None:
        self._now += 1
        item["metadata"]["resourceVersion"] = str(self._now)
        self._objects[kind, item["metadata"]["namespace"], item["metadata"]["name"]] = item
        self._history.append((self._now, kind, what, copy.deepcopy(item)))
        self._changed.notify_all()

    def _remove(self, kind: str, item: Data, *, with_owned: bool = True) -> None:
        metadata = item["metadata"]
        if kind == "pods" and not _ended(item):
            # Gone only once its processes are.
            if "deletionTimestamp" not in metadata:
                item = copy.deepcopy(item)
                item["metadata"]["deletionTimestamp"] = _now()
                self._put("MODIFIED", kind, item)
                process = self._processes.get(metadata["uid"])
                if process is None:
                    self._forget(kind, item)
                else:
                    process.signal(signal.SIGTERM)
                    grace = item["spec"].get("terminationGracePeriodSeconds", 30)
                    timer = threading.Timer(grace, process.kill)
                    timer.daemon = True
                    timer.start()
                self._control()
            return
        self._forget(kind, item)
        if not (self.collects and with_owned):
            return
        for (other, _, _), owned in list(self._objects.items()):
            owners = owned["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == metadata["uid"] for owner in owners):
                self._remove(other, owned)

    def _forget(self, kind: str, item: Data) -> None:
        metadata = item["metadata"]
        self._objects.pop((kind, metadata["namespace"], metadata["name"]), None)
        self._now += 1
        gone = copy.deepcopy(item)
        gone["metadata"]["resourceVersion"] = str(self._now)
        self._history.append((self._now, kind, "DELETED", gone))
        self._changed.notify_all()

    # -- the Job controller -----------------------------------------------------------------------

    def _control(self) -> None:
        for (kind, _, _), wrapper in list(self._objects.items()):
            if kind == "appwrappers":
                self._control_app_wrapper(wrapper)
        for (kind, _, _), job_set in list(self._objects.items()):
            if kind == "jobsets" and not _conditions(job_set):
                self._control_job_set(job_set)
        for (kind, _, _), job in list(self._objects.items()):
            if kind == "jobs" and not _is_finished(job):
                self._control_job(job)

    def _pods_of(self, job: Data) -> list[Data]:
        return [
            pod
            for (kind, _, _), pod in self._objects.items()
            if kind == "pods" and pod["metadata"]["labels"].get(JOB_NAME) == job["metadata"]["name"]
        ]

    def _control_app_wrapper(self, wrapper: Data) -> None:
        namespace, phase = wrapper["metadata"]["namespace"], wrapper.get("status", {}).get("phase")
        if phase is None:
            wrapper = self._with_phase(wrapper, "Resuming")  # before what is made comes back here
            for item in components_of(wrapper):
                self.create(f"{item['kind'].lower()}s", namespace, item)
            return
        makes = [item["template"] for item in wrapper["spec"]["components"]]
        known = [
            self._objects.get((f"{item['kind'].lower()}s", namespace, item["metadata"]["name"]))
            for item in makes
            if item["kind"] != "Service"
        ]
        ends = ("Complete", "Completed", "Failed")
        told = [
            next((one["type"] for one in _conditions(item or {}) if one["type"] in ends), None)
            for item in known
        ]
        if phase_of(told) != phase and phase not in ("Succeeded", "Failed"):
            self._with_phase(wrapper, phase_of(told))

    def _with_phase(self, wrapper: Data, phase: str) -> Data:
        wrapper = copy.deepcopy(wrapper)
        wrapper["status"] = {"phase": phase}
        self._put("MODIFIED", "appwrappers", wrapper)
        return wrapper

    def _control_job_set(self, job_set: Data) -> None:
        namespace, ends = job_set["metadata"]["namespace"], dict[str, str | None]()
        for job in jobs_of(job_set):
            name = job["metadata"]["name"]
            known = self._objects.get(("jobs", namespace, name))
            if known is None:
                self.create("jobs", namespace, job)
                return  # which has come back here, to make the next
            ended = [one["type"] for one in _conditions(known) if one["type"] in _TERMINAL.values()]
            ends[name] = ended[-1] if ended else None
        if (end := end_of(job_set, ends)) is not None:
            told = {"type": end, "status": "True", "reason": "AllJobsCompleted", "message": ""}
            job_set = copy.deepcopy(job_set)
            job_set["status"] = {"conditions": [told]}
            self._put("MODIFIED", "jobsets", job_set)

    def _control_job(self, job: Data) -> None:
        spec = job["spec"]
        pods = self._pods_of(job)
        if _conditions(job):  # over, once its pods are
            if all(map(_ended, pods)):
                last = _conditions(job)[-1]
                self._add_condition(job, _TERMINAL[last["type"]], last["reason"])
            return
        if spec.get("suspend"):
            self._take_out(job, pods)
            return
        if "startTime" not in job.get("status", {}):
            job = self._with_status(job, {"startTime": _now()})
        if "activeDeadlineSeconds" in spec and self._is_late(job):
            self._finish(job, "FailureTarget", "DeadlineExceeded")
            return
        by_index: dict[int, list[Data]] = {}
        for pod in pods:
            by_index.setdefault(int(pod["metadata"]["annotations"][INDEX]), []).append(pod)
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
        early = spec.get("podReplacementPolicy", "TerminatingOrFailed") == "TerminatingOrFailed"
        for index in range(spec["completions"]):
            some = by_index.get(index, [])
            leaving = [pod for pod in some if "deletionTimestamp" in pod["metadata"] and not _ended(pod)]
            alive = [pod for pod in some if not _ended(pod) and pod not in leaving]
            if index not in done and index not in failed and not alive and (early or not leaving):
                self._make_pod(job, index)
        for index, some in by_index.items():
            if index >= spec["completions"]:
                for pod in some:
                    self._remove("pods", pod)

    def _take_out(self, job: Data, pods: list[Data]) -> None:
        """End the pods of a Job that is suspended: they count as no failures, and its time begins anew with it."""
        if "startTime" in job.get("status", {}):
            job = copy.deepcopy(job)
            del job["status"]["startTime"]
            self._put("MODIFIED", "jobs", job)
        for pod in pods:
            if not _ended(pod) and "deletionTimestamp" not in pod["metadata"]:
                pod = copy.deepcopy(pod)
                pod["metadata"].pop("finalizers", None)
                self._remove("pods", pod)

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
            if not _ended(pod):
                self._remove("pods", pod)
        self._control()

    def _add_condition(self, job: Data, condition: str, reason: str) -> None:
        job = copy.deepcopy(job)
        told = {"type": condition, "status": "True", "reason": reason, "message": ""}
        job = self._with_status(job, {"conditions": [*_conditions(job), told]})
        if _is_finished(job) and (keep_s := job["spec"].get("ttlSecondsAfterFinished")) is not None:
            self._later(keep_s, lambda: self._remove_if_there(job))

    def _with_status(self, job: Data, status: Data) -> Data:
        """Note something about a Job; return it as it is then."""
        job = copy.deepcopy(job)
        job["status"] = {**job.get("status", {}), **status}
        self._put("MODIFIED", "jobs", job)
        return job

    def _is_late(self, job: Data) -> bool:
        """Return whether a Job has run for longer than it may; if not, look again when it has."""
        ran_s = time.time() - _seconds(job["status"]["startTime"])
        left_s = float(job["spec"]["activeDeadlineSeconds"]) - ran_s
        if left_s > 0:
            self._later(left_s, self._control)
        return left_s <= 0

    def _later(self, seconds: float, then: Callable[[], None]) -> None:
        def locked() -> None:
            with self._changed:
                then()

        timer = threading.Timer(seconds, locked)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _remove_if_there(self, job: Data) -> None:
        known = self._objects.get(("jobs", job["metadata"]["namespace"], job["metadata"]["name"]))
        if known is not None and known["metadata"]["uid"] == job["metadata"]["uid"]:
            self._remove("jobs", known)

    def _count_end(self, pod: Data) -> None:
        """Count the end of a pod for its Job, which keeps it until then: also that of one that was deleted."""
        index, owner = (
            int(pod["metadata"]["annotations"][INDEX]),
            pod["metadata"]["ownerReferences"][0]["uid"],
        )
        self._ends.setdefault(owner, {}).setdefault(index, []).append(_phase(pod))

    def _failures_of(self, job: Data, index: int) -> dict[str, str]:
        """Return the annotation by which a Job with a limit for each index counts the failures of one."""
        if "backoffLimitPerIndex" not in job["spec"]:
            return {}
        ends = self._ends.get(job["metadata"]["uid"], {}).get(index, [])
        return {FAILURES: str(ends.count("Failed"))}

    def _refuse_pod(self, job: Data, message: str) -> None:
        """Tell why a Job gets no pod, as the controller does: by an event."""
        self._warn("Job", job, "FailedCreate", message)

    def _warn(self, kind: str, item: Data, reason: str, message: str) -> None:
        """Tell something about an object by an event."""
        name = item["metadata"]["name"]
        event: Data = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{reason.lower()}", "namespace": item["metadata"]["namespace"]},
            "involvedObject": {"kind": kind, "name": name, "uid": item["metadata"]["uid"]},
            "type": "Warning",
            "reason": reason,
            "message": message,
        }
        if ("events", event["metadata"]["namespace"], event["metadata"]["name"]) not in self._objects:
            event["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
            self._put("ADDED", "events", event)

    def _make_pod(self, job: Data, index: int) -> None:
        template, name = job["spec"]["template"], job["metadata"]["name"]
        if wrong := restricted_problems(template["spec"]):
            told = f'violates PodSecurity "restricted:latest": {", ".join(wrong)}'
            self._refuse_pod(job, f'Error creating: pods "{name}-{index}-" is forbidden: {told}')
            return
        if self.quota is not None and len(self._pods_of(job)) >= self.quota:
            told = f"exceeded quota: compute, requested: pods=1, used: pods={self.quota}, limited: pods={self.quota}"
            self._refuse_pod(job, f'Error creating: pods "{name}-{index}-" is forbidden: {told}')
            return
        self._addresses += 1
        address = f"127.0.77.{self._addresses}"
        metadata = {
            "name": f"{name}-{index}-{secrets.token_hex(3)[:5]}",
            "namespace": job["metadata"]["namespace"],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": _now(),
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
        spec = {**copy.deepcopy(template["spec"]), "hostname": f"{name}-{index}"}
        pod: Data = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        pod["status"] = {"phase": "Pending", "podIP": address}
        if index in self.unschedulable:
            message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
            }
            pod["status"] = {"phase": "Pending", "conditions": [condition]}
        self._put("ADDED", "pods", pod)
        if index not in self.unschedulable:
            self._run_pod(pod, index)
        else:
            self._warn("Pod", pod, "FailedScheduling", pod["status"]["conditions"][0]["message"])

    # -- the kubelet ------------------------------------------------------------------------------

    def _run_pod(self, pod: Data, index: int) -> None:
        container, metadata = pod["spec"]["containers"][0], pod["metadata"]
        namespace = metadata["namespace"]
        host, domain = pod["spec"]["hostname"], pod["spec"]["subdomain"]
        lines = [line for line in self._hosts.read_text().splitlines() if f" {host} " not in f"{line} "]
        lines.append(f"{pod['status']['podIP']} {host} {host}.{domain}")
        self._hosts.write_text("\n".join(lines) + "\n")  # the same file, which all pods see
        env = variables_of(container, pod, lambda name: _texts(self._get("secrets", namespace, name)["data"]))
        env["JOB_COMPLETION_INDEX"] = str(index)
        process = self._spawner.submit(
            PodProcess,
            self._argv([expanded(word, env) for word in container["command"]]),
            env,
            name=host,
            hosts=self._hosts,
            cwd=Path(container["workingDir"]),
            files=self._files_of(pod, container),
            on_end=lambda code: self._on_end(metadata["uid"], code),
        ).result()
        self._processes[metadata["uid"]] = process
        pod = copy.deepcopy(pod)
        pod["status"] |= {"phase": "Running", "containerStatuses": [_state(container, {"running": {}})]}
        self._put("MODIFIED", "pods", pod)

    def _files_of(self, pod: Data, container: Data) -> dict[str, dict[str, bytes]]:
        """Return the files of the ConfigMaps that a container sees, by folder."""
        maps = {volume["name"]: config_maps_of(volume) for volume in pod["spec"].get("volumes", ())}
        return {
            mount["mountPath"]: {
                file: base64.b64decode(data)
                for name in maps[mount["name"]]
                for file, data in self._get("configmaps", pod["metadata"]["namespace"], name)[
                    "binaryData"
                ].items()
            }
            for mount in container.get("volumeMounts", ())
            if maps[mount["name"]]
        }

    def _on_end(self, identity: str, code: int) -> None:
        with self._changed:
            for (kind, _, _), pod in list(self._objects.items()):
                if kind == "pods" and pod["metadata"]["uid"] == identity:
                    pod = copy.deepcopy(pod)
                    ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
                    pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
                    pod["status"]["containerStatuses"] = [
                        _state(pod["spec"]["containers"][0], {"terminated": ended})
                    ]
                    if pod["metadata"].pop("finalizers", None):
                        self._count_end(pod)
                    self._put("MODIFIED", "pods", pod)
                    if "deletionTimestamp" in pod["metadata"]:
                        self._forget("pods", pod)
                    self._control()

    # -- streams ----------------------------------------------------------------------------------

    def listing(self, kind: str, namespace: str, query: dict[str, str]) -> Data:
        """Return the objects of a kind that the selectors take. As in a real list, they do not tell their kind."""
        with self._changed:
            items = [
                {
                    field: copy.deepcopy(part)
                    for field, part in item.items()
                    if field not in ("apiVersion", "kind")
                }
                for (other, place, _), item in self._objects.items()
                if other == kind and place == namespace and _selected(item, query.get("labelSelector", ""))
                if _has_fields(kind, item, query.get("fieldSelector", ""))
            ]
            version, single = _KINDS[kind]
            metadata = {"resourceVersion": str(self._now)}
            return {"apiVersion": version, "kind": f"{single}List", "items": items, "metadata": metadata}

    def watch(
        self, kind: str, namespace: str, selector: str, version: int, *, bookmarks: bool
    ) -> Iterator[Data]:
        """Yield what happens to the objects of a kind after a version."""
        epoch, place = self._epoch, 0
        while True:
            with self._changed:
                if version < self._expired:
                    message = "too old resource version"
                    yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": message}}
                    return
                found = []
                for number, other, what, item in self._history[place:]:
                    place += 1
                    mine = other == kind and item["metadata"]["namespace"] == namespace
                    if number > version and mine and _selected(item, selector):
                        found.append({"type": what, "object": item})
                if not found:
                    self._changed.wait(0.5)
                    if self._epoch != epoch:
                        return
                    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": str(self._now)}}
                    found = [{"type": "BOOKMARK", "object": bookmark}] if bookmarks else []
            yield from found

    def check_log(self, name: str, namespace: str, container: str) -> None:
        """Refuse the log of a container that is not there, or has not started."""
        with self._changed:
            pod = self._get("pods", namespace, name)
        if container not in [one["name"] for one in pod["spec"]["containers"]]:
            raise ApiRefusalError(400, f"container {container} is not valid for pod {name}")
        if self.unreachable_kubelets:
            raise ApiRefusalError(500, 'Get "https://node-1:10250/containerLogs": dial tcp: no route to host')
        if pod["metadata"]["uid"] not in self._processes:
            raise ApiRefusalError(
                400, f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            )

    def log_lines(self, name: str, namespace: str, since: str, follow: bool) -> Iterator[bytes]:
        """Yield the lines of a pod's log, with their times."""
        with self._changed:
            identity = self._get("pods", namespace, name)["metadata"]["uid"]
            epoch = self._epoch
        process = self._processes[identity]
        log, place, sent = process.log, 0, 0
        # A stream begins with the second at which the last one broke, so each must last longer to get further.
        self._broken += follow
        most = self.break_logs_every * self._broken if self.break_logs_every and follow else None
        while True:
            with log.changed:
                new, place = log.lines[place:], len(log.lines)
                ended = log.ended
                if not new and not ended and follow:
                    log.changed.wait(0.2)
            for moment, line in new:
                if moment >= since:
                    yield f"{moment} ".encode() + line + b"\n"
                    sent += 1
                    if most is not None and sent >= most:
                        return
            if (ended or not follow) and not new:
                return
            if self._epoch != epoch:
                return

    def check(self, item: Data, *, code: int = 422) -> None:
        """Refuse an object that the schemas of this version do not know."""
        try:
            check(item, self._version)
        except Exception as error:
            raise ApiRefusalError(code, f"strict decoding error: {str(error).splitlines()[0]}") from None


class ApiRefusalError(Exception):
    """A request that is refused."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    cluster: VirtualKubernetes
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.cluster.requests.append((self.command, address.path, body))
        try:
            self._check_rights(address.path, query)
            self._carry_out(address.path, query, body)
        except ApiRefusalError as refusal:
            if self.cluster.drop_refusals > 0:
                self.cluster.drop_refusals -= 1
                self.close_connection = True
                return
            status = {"kind": "Status", "status": "Failure", "message": str(refusal), "code": refusal.code}
            reason = refusal.reason or _REASONS.get(refusal.code, "")
            self._send(refusal.code, {**status, "reason": reason})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _check_rights(self, path: str, query: dict[str, str]) -> None:
        if self.headers.get("Authorization") != "Bearer a-token":
            raise ApiRefusalError(401, "Unauthorized")
        if self.cluster.busy > 0:
            self.cluster.busy -= 1
            raise ApiRefusalError(429, "too many requests")
        match = _PATH.fullmatch(path)
        if match is None:
            return
        _, kind, name, sub = match.groups()
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(self.command, "get")
        if self.command == "GET" and name is None:
            verb = "watch" if query.get("watch") else "list"
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        resource = f"{kind}/{sub}" if sub else kind
        if kind in self.cluster.forbidden or verb not in self.cluster.rules.get((group, resource), ()):
            told = (
                f'{kind} is forbidden: User "me" cannot {verb} resource "{resource}" in API group "{group}"'
            )
            raise ApiRefusalError(403, told)

    def _body(self, text: str, *kinds: str) -> Data:
        """Return the object that was sent, in one of the forms that are taken."""
        kind = self.headers.get("Content-Type", "")
        if kind not in kinds:
            raise ApiRefusalError(
                415, f"the body of the request was in an unknown format, got {kind or 'none'}"
            )
        found: Data = go_yaml.load(text) if kind == "application/yaml" else json.loads(text)
        return found

    def _carry_out(self, path: str, query: dict[str, str], body: str) -> None:
        if path.endswith("/selfsubjectaccessreviews"):
            asked = self._body(body, "application/json")["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, [asked["resource"], asked.get("subresource")]))
            verbs = self.cluster.rules.get((asked["group"], resource), ())
            allowed = asked["resource"] not in self.cluster.forbidden and asked["verb"] in verbs
            self._send(201, {"status": {"allowed": allowed}})
            return
        match = _PATH.fullmatch(path)
        if match is None or match[2] not in _KINDS:
            raise ApiRefusalError(404, f"the server could not find the requested resource {path}")
        namespace, kind, name, sub = match.groups()
        if sub == "log":
            self._stream(self._log_lines(name, namespace, query), "text/plain")
        elif self.command == "POST":
            item = self._body(body, "application/json", "application/yaml")
            if (
                query.get("fieldValidation") != "Strict"
            ):  # a field of a typing error would be left out, with a warning
                raise ApiRefusalError(400, "objects must be sent with fieldValidation=Strict")
            self.cluster.check(item, code=400)
            made = self.cluster.create(kind, namespace, item, is_trial=query.get("dryRun") == "All")
            if self.cluster.drop_answers > 0:
                self.cluster.drop_answers -= 1
                raise ConnectionResetError
            self.cluster.wait_for("words", lambda: self.cluster.silent_kind != kind)
            self._send(201, made, warnings=_warnings(item))
        elif self.command == "PATCH":
            # The others are taken by a real one as well; a run sends none of them.
            change = self._body(body, "application/merge-patch+json")
            changed = self.cluster.patch(kind, namespace, name, change)
            self._send(200, changed, warnings=_warnings(changed))
        elif self.command == "DELETE":
            self._send(200, self.cluster.remove(kind, namespace, name, query.get("propagationPolicy", "")))
        elif name is not None:
            with self.cluster._changed:
                self._send(200, copy.deepcopy(self.cluster._get(kind, namespace, name)))
        elif query.get("watch"):
            events = self.cluster.watch(
                kind,
                namespace,
                query.get("labelSelector", ""),
                int(query["resourceVersion"]),
                bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
            )
            self._stream((json.dumps(event).encode() + b"\n" for event in events), "application/json")
        else:
            self._send(200, self.cluster.listing(kind, namespace, query))

    def _log_lines(self, name: str, namespace: str, query: dict[str, str]) -> Iterator[bytes]:
        since = query.get("sinceTime", "")
        if since and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", since):
            raise ApiRefusalError(400, f"sinceTime must be a time of RFC 3339, got {since}")
        self.cluster.check_log(name, namespace, query.get("container", ""))
        return self.cluster.log_lines(name, namespace, since.rstrip("Z"), query.get("follow") == "true")

    def _send(self, code: int, data: Data, *, warnings: Iterable[str] = ()) -> None:
        body = json.dumps(data).encode()
        self.send_response(code)
        for text in warnings:
            self.send_header("Warning", f"299 - {json.dumps(text)}")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if code == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, pieces: Iterator[bytes], kind: str) -> None:
        first = next(pieces, b"")  # or an error, before anything is said
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in _with_first(first, pieces):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _state(container: Data, state: Data) -> Data:
    return {"name": container["name"], "state": state}


def _phase(pod: Data) -> str:
    return str(pod["status"]["phase"])


def _ended(pod: Data) -> bool:
    return _phase(pod) in ("Succeeded", "Failed")


def _conditions(job: Data) -> list[Data]:
    return list(job.get("status", {}).get("conditions", ()))


_TERMINAL = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


def _is_finished(job: Data) -> bool:
    return any(condition["type"] in _TERMINAL.values() for condition in _conditions(job))


def _now() -> str:
    return _time(time.time())


def _time(seconds: float) -> str:
    """Return a time as objects tell it: whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _seconds(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))


def _texts(data: dict[str, str]) -> dict[str, str]:
    return {name: base64.b64decode(text).decode() for name, text in data.items()}


def _fill_in(item: Data) -> None:
    """Fill in what an API server does: fields that were left out, and secrets in their stored form."""
    if item["kind"] == "Secret" and "stringData" in item:
        texts = {
            name: base64.b64encode(text.encode()).decode() for name, text in item.pop("stringData").items()
        }
        item["data"] = {**item.get("data", {}), **texts}
    if item["kind"] == "Job":
        identity = {"batch.kubernetes.io/controller-uid": item["metadata"]["uid"]}
        defaults = {
            "suspend": False,
            "manualSelector": False,
            "selector": {"matchLabels": identity},
            "backoffLimit": (1 << 31) - 1 if "backoffLimitPerIndex" in item["spec"] else 6,
            "podReplacementPolicy": "TerminatingOrFailed",
        }
        item["spec"] = {**defaults, **item["spec"]}
        template = item["spec"]["template"].setdefault("metadata", {})
        known = {
            **identity,
            JOB_NAME: item["metadata"]["name"],
            "controller-uid": item["metadata"]["uid"],
            "job-name": item["metadata"]["name"],
        }
        template["labels"] = {**template.get("labels", {}), **known}
        item["spec"]["template"]["spec"] = {
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            **item["spec"]["template"]["spec"],
        }
    if item["kind"] == "Service":
        item["spec"] = {"type": "ClusterIP", "sessionAffinity": "None", **item["spec"]}


def _warnings(item: Data) -> list[str]:
    """Return what a real server says about an object that it takes: that its pods will be refused."""
    wrong = restricted_problems(item["spec"]["template"]["spec"]) if item["kind"] == "Job" else []
    return [f'would violate PodSecurity "restricted:latest": {", ".join(wrong)}'] if wrong else []


def _has_fields(kind: str, item: Data, selector: str) -> bool:
    for part in filter(None, selector.split(",")):
        path, _, value = part.partition("=")
        if path not in _FIELDS.get(kind, ("metadata.name",)):
            raise ApiRefusalError(400, f'field label not supported: "{path}"')
        place: Any = item
        for name in path.split("."):
            place = place.get(name, {}) if isinstance(place, dict) else {}
        if place != value:
            return False
    return True


def _selected(item: Data, selector: str) -> bool:
    labels = item["metadata"].get("labels", {})
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(labels.get(name) == value for name, value in wanted.items())


def _merge(item: Data, change: Data) -> None:
    for name, value in change.items():
        if value is None:
            item.pop(name, None)
        elif isinstance(value, dict) and isinstance(item.get(name), dict):
            _merge(item[name], value)
        else:
            item[name] = value
