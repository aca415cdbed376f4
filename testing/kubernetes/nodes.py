"""The nodes of our own cluster: they run pods as processes by the kubelet, tell how these end, and keep their logs."""

from __future__ import annotations

import base64
import copy
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testing.kubernetes.faults import ClusterFaults
from testing.kubernetes.kubelet import PodProcess, config_maps_of, expanded, variables_of
from testing.kubernetes.network import PodNetwork, address_of
from testing.kubernetes.objects import ApiRefusalError, Data, container_state, texts_of
from testing.kubernetes.store import ObjectStore


class ClusterNodes:
    """The processes of all pods. `argv` stands for the image; `count_end` is told of pods that have ended."""

    def __init__(
        self,
        store: ObjectStore,
        faults: ClusterFaults,
        folder: Path,
        *,
        argv: Callable[[list[str]], list[str]],
        count_end: Callable[[Data], None],
        control: Callable[[], None],
    ) -> None:
        self._store, self._faults = store, faults
        self._argv, self._count_end, self._control = argv, count_end, control
        self._processes: dict[str, PodProcess] = {}  # by the pods' identities
        # Pods die with the thread that starts them, so it must stay as long as the cluster.
        self._spawner = ThreadPoolExecutor(1)
        self._network = self._spawner.submit(PodNetwork, folder).result()
        self._numbers = itertools.count(2)  # of the pods' addresses
        self._cables: dict[str, int] = {}  # those numbers, by the pods' identities
        self._hosts = folder / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n")
        self._broken = 0  # log streams so far

    def close(self) -> None:
        """End all pods."""
        for process in list(self._processes.values()):
            process.close()
        self._network.close()
        self._spawner.shutdown()

    def process_of(self, pod: Data) -> PodProcess:
        """Return the process of a pod that has one."""
        return self._processes[pod["metadata"]["uid"]]

    def printed_by(self, pod: Data) -> str:
        """Return what a pod has printed."""
        process = self._processes.get(pod["metadata"]["uid"])
        if process is None:
            return ""
        return "\n".join(line.decode(errors="replace") for _, line in process.log.lines)

    def cut(self, pod: Data) -> None:
        """Cut the cable of a pod's node."""
        self._network.cut(self._cables[pod["metadata"]["uid"]])

    def stop(self, pod: Data) -> bool:
        """Ask the processes of a pod to end, and end them after its grace; return whether it has any."""
        process = self._processes.get(pod["metadata"]["uid"])
        if process is None:
            return False
        process.signal(signal.SIGTERM)
        timer = threading.Timer(pod["spec"].get("terminationGracePeriodSeconds", 30), process.kill)
        timer.daemon = True
        timer.start()
        return True

    def run(self, pod: Data, index: int) -> None:
        """Start the process of a pod."""
        container, metadata = pod["spec"]["containers"][0], pod["metadata"]
        namespace, number = metadata["namespace"], next(self._numbers)
        pod = copy.deepcopy(pod)
        pod["status"]["podIP"] = address_of(number)
        self._cables[metadata["uid"]] = number
        host, domain = pod["spec"]["hostname"], pod["spec"]["subdomain"]
        lines = [line for line in self._hosts.read_text().splitlines() if f" {host} " not in f"{line} "]
        lines.append(f"{pod['status']['podIP']} {host} {host}.{domain}")
        self._hosts.write_text("\n".join(lines) + "\n")  # the same file, which all pods see
        env = variables_of(
            container, pod, lambda name: texts_of(self._store.get("secrets", namespace, name)["data"])
        )
        env["JOB_COMPLETION_INDEX"] = str(index)
        process = self._spawner.submit(
            PodProcess,
            self._argv([expanded(word, env) for word in container["command"]]),
            env,
            name=host,
            hosts=self._hosts,
            cwd=Path(container["workingDir"]),
            files=self._files_of(pod, container),
            address=address_of(number),
            plug=lambda holder: self._network.plug(holder, number),
            on_end=lambda code: self._on_end(metadata["uid"], code),
        ).result()
        self._processes[metadata["uid"]] = process
        state = container_state(container, {"running": {}})
        pod["status"] |= {"phase": "Running", "containerStatuses": [state]}
        self._store.put("MODIFIED", "pods", pod)

    def _files_of(self, pod: Data, container: Data) -> dict[str, dict[str, bytes]]:
        """Return the files of the ConfigMaps that a container sees, by folder."""
        maps = {volume["name"]: config_maps_of(volume) for volume in pod["spec"].get("volumes", ())}
        namespace = pod["metadata"]["namespace"]
        return {
            mount["mountPath"]: {
                file: base64.b64decode(data)
                for name in maps[mount["name"]]
                for file, data in self._store.get("configmaps", namespace, name)["binaryData"].items()
            }
            for mount in container.get("volumeMounts", ())
            if maps[mount["name"]]
        }

    def _on_end(self, identity: str, code: int) -> None:
        with self._store.changed:
            for pod in self._store.of_kind("pods"):
                if pod["metadata"]["uid"] == identity:
                    self._note_end(copy.deepcopy(pod), code)

    def _note_end(self, pod: Data, code: int) -> None:
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
        pod["status"]["containerStatuses"] = [
            container_state(pod["spec"]["containers"][0], {"terminated": ended})
        ]
        if pod["metadata"].pop("finalizers", None):
            self._count_end(pod)
        self._store.put("MODIFIED", "pods", pod)
        if "deletionTimestamp" in pod["metadata"]:
            self._store.forget("pods", pod)
        self._control()

    # -- logs -------------------------------------------------------------------------------------

    def check_log(self, name: str, namespace: str, container: str) -> None:
        """Refuse the log of a container that is not there, or has not started."""
        with self._store.changed:
            pod = self._store.get("pods", namespace, name)
        if container not in [one["name"] for one in pod["spec"]["containers"]]:
            raise ApiRefusalError(400, f"container {container} is not valid for pod {name}")
        if self._faults.unreachable_kubelets:
            raise ApiRefusalError(500, 'Get "https://node-1:10250/containerLogs": dial tcp: no route to host')
        if pod["metadata"]["uid"] not in self._processes:
            raise ApiRefusalError(
                400, f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            )

    def log_lines(
        self, name: str, namespace: str, since: str, *, follow: bool, timestamps: bool
    ) -> Iterator[bytes]:
        """Yield the lines of a pod's log, with their times where those are asked for."""
        with self._store.changed:
            identity = self._store.get("pods", namespace, name)["metadata"]["uid"]
            epoch = self._store.epoch
        process = self._processes[identity]
        log, place, sent = process.log, 0, 0
        # A stream begins with the second at which the last one broke, so each must last longer to get further.
        self._broken += follow
        every = self._faults.break_logs_every
        most = every * self._broken if every and follow else None
        while True:
            with log.changed:
                new, place = log.lines[place:], len(log.lines)
                ended = log.ended
                if not new and not ended and follow:
                    log.changed.wait(0.2)
            for moment, line in new:
                if moment >= since:
                    yield (f"{moment} ".encode() if timestamps else b"") + line + b"\n"
                    sent += 1
                    if most is not None and sent >= most:
                        return
            if (ended or not follow) and not new:
                return
            if self._store.epoch != epoch:
                return
