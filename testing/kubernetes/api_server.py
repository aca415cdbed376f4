"""A Kubernetes cluster of our own for tests: an API server, controllers, and nodes that run pods as processes.

    with VirtualKubernetes(tmp_path) as cluster:
        shell.weft("run", "--engine", "kubernetes", ..., KUBECONFIG=cluster.kubeconfig)
        cluster.kill_pod(1)

It lists, watches (with resource versions, bookmarks and expiry), takes merge patches, streams logs, and makes pods of
Jobs, which a kubelet of ours runs as processes. It is as strict as a real one where we know that one: unknown fields,
content types, permissions, immutable fields, PodSecurity (`restricted`) and quota. A real one may still refuse more.

`store.py` keeps the objects, `admission.py` takes changes in, `job_controller.py` makes pods, `nodes.py` runs them, and
`http_server.py` is what a client sees. The pure rules of all these are in `rules/`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import yaml
from testing.kubernetes.admission import ClusterAdmission
from testing.kubernetes.faults import ClusterFaults
from testing.kubernetes.http_server import TOKEN, serve
from testing.kubernetes.job_controller import JobController
from testing.kubernetes.nodes import ClusterNodes
from testing.kubernetes.objects import Data, conditions_of, has_ended, index_of, is_finished, now
from testing.kubernetes.set_controllers import control_app_wrapper, control_job_set
from testing.kubernetes.store import ObjectStore

WAIT_S = 180.0  # the machine may have much else to do


class VirtualKubernetes(ClusterFaults):
    """One cluster. Its `requests` are kept for tests to look at; its faults are fields and methods."""

    def __init__(
        self, folder: Path, *, version: str = "1.34", argv: Callable[[list[str]], list[str]] | None = None
    ) -> None:
        super().__init__()
        self.folder, self.version = folder, version
        self.requests: list[tuple[str, str, str]] = []  # method, path, body
        self.store = ObjectStore()
        self.admission = ClusterAdmission(self.store, self, version)
        self._jobs = JobController(self.store, self.admission, self)
        self.nodes = ClusterNodes(
            self.store,
            self,
            folder,
            # What stands for an image: another command for the same words.
            argv=argv or (lambda words: words),
            count_end=self._jobs.count_end,
            control=self._control,
        )
        self.admission.control, self.admission.stop_pod = self._control, self.nodes.stop
        self._jobs.run_pod = self.nodes.run
        self._server = serve(self)
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
            "users": [{"name": "me", "user": {"token": TOKEN}}],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._jobs.close()
        self.nodes.close()

    def _control(self) -> None:
        """Let all controllers look at their objects."""
        for kind, item in self.store.all():
            if kind == "appwrappers":
                control_app_wrapper(self.store, self.admission, item)
        for kind, item in self.store.all():
            if kind == "jobsets" and not conditions_of(item):
                control_job_set(self.store, self.admission, item)
        for kind, item in self.store.all():
            if kind == "jobs" and not is_finished(item):
                self._jobs.control(item)

    # -- what tests look at -----------------------------------------------------------------------

    def objects(self, kind: str) -> list[Data]:
        """Return all objects of a kind."""
        return self.store.of_kind(kind)

    def has_none(self, kind: str) -> bool:
        """Return whether there is no object of a kind."""
        return not self.objects(kind)

    def pod(self, index: int) -> Data:
        """Return the newest pod of an index that has not ended."""
        alive = [pod for pod in self._pods_of(index) if not has_ended(pod)]
        return alive[-1]

    def log(self, index: int) -> str:
        """Return what the newest pod of an index has printed."""
        found = self._pods_of(index)
        return self.nodes.printed_by(found[-1]) if found else ""

    def _pods_of(self, index: int) -> list[Data]:
        return [pod for pod in self.objects("pods") if index_of(pod) == index]

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait for something to become true of the cluster."""
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} within {WAIT_S:g} s")
            time.sleep(0.02)

    # -- what tests do ----------------------------------------------------------------------------

    def patch(self, kind: str, namespace: str, name: str, change: Data) -> Data:
        """Merge a change into an object, as another client does."""
        return self.admission.patch(kind, namespace, name, change)

    def kill_pod(self, index: int) -> None:
        """End the processes of a pod at once, as when its container is out of memory."""
        self.nodes.process_of(self.pod(index)).kill()

    def kill_worker(self, index: int) -> None:
        """End the worker of a pod at once, and nothing else of the pod."""
        self.nodes.process_of(self.pod(index)).kill_worker()

    def freeze_pod(self, index: int) -> None:
        """Have a node fall silent: the processes of its pod stop, and nobody tells."""
        self.nodes.process_of(self.pod(index)).freeze()

    def cut_pod(self, index: int) -> None:
        """Cut the cable of a pod's node: its processes go on, and nobody hears of them."""
        self.nodes.cut(self.pod(index))

    def delete_pod(self, index: int) -> None:
        """Evict a pod, as for a node that is drained: SIGTERM, and another pod in its place."""
        pod = self.pod(index)
        self.evict(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def evict(self, namespace: str, name: str) -> None:
        """Evict a pod, as a request to its `eviction` does."""
        told = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        with self.store.changed:
            pod = self._disrupt(self.store.get("pods", namespace, name), told)
            self.admission.remove("pods", pod)

    def give_up_pod(self, index: int) -> None:
        """Have the cluster give a pod up whose node it does not hear of: it leaves for ever, and another one comes."""
        told = {
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        with self.store.changed:
            pod = self._disrupt(self.pod(index), told)
            pod["metadata"]["deletionTimestamp"] = now()
            self.store.put("MODIFIED", "pods", pod)
            self._control()

    def _disrupt(self, pod: Data, told: Data) -> Data:
        """Note why a pod is taken away; return it as it is then."""
        pod = copy.deepcopy(pod)
        others = pod["status"].get("conditions", [])
        pod["status"]["conditions"] = [*others, {"type": "DisruptionTarget", "status": "True", **told}]
        self.store.put("MODIFIED", "pods", pod)
        return pod

    def hasten(self, seconds: float) -> None:
        """Let time go by for the deadlines of Jobs, and for those that are kept after their end."""
        with self.store.changed:
            self._jobs.hasten(seconds)
            self._control()

    def restart(self) -> None:
        """Break all streams, as an API server that restarts does."""
        self.store.break_streams()

    def expire(self) -> None:
        """Forget all versions, and break all streams: watches that go on get 410."""
        self.store.expire()
