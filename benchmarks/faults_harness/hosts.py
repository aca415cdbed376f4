"""One run of the campaign on the hosts of a virtual cluster, one worker each: agents, cables and hosts are harmed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from benchmarks.faults_harness.episode import SIGNALS, WEFT, Episode
from testing.cluster.cluster import VirtualCluster
from testing.forking.hosts import HostForks

ALONE_S = (
    10  # until a host that is cut off from all ends its workers: shorter than usual, as it is waited for
)
GIVE_UP_S = 30.0  # for it to have done so on a busy machine, from the end of the run on
LOOK_S = 0.2


class HostsEpisode(Episode):
    """A run on all hosts of a cluster, launched on its head."""

    def __init__(
        self, folder: Path, cluster: VirtualCluster, forks: HostForks | None, *, epochs: int, step_ms: float
    ) -> None:
        self._cluster, self._forks = cluster, forks
        self._cut: list[str] = []  # hosts whose cables are cut
        self._dark: list[str] = []  # hosts without power
        self._was_cut = False  # a host was cut off at least once: it may not hear of the run's end
        self._clean = {host.name: self._shared_files(host.name) for host in cluster.hosts}
        self._pids: dict[str, psutil.Process] = {}
        super().__init__(folder, workers=len(cluster.hosts), epochs=epochs, step_ms=step_ms)

    def _launch(self, run: Sequence[str], script: Sequence[str], log: Any) -> subprocess.Popen[Any]:
        hosts = ",".join(host.name for host in self._cluster.hosts)
        python = () if self._cluster.python is None else ("--python", self._cluster.python)
        env = {"XDG_CACHE_HOME": str(self.folder / "cache"), "OMP_NUM_THREADS": "1"}
        return self._cluster.popen(
            [
                WEFT,
                *run,
                "-H",
                hosts,
                "--alone",
                str(ALONE_S),
                "--skip-checks",
                "--env",
                "OMP_NUM_THREADS",
                *python,
                *script,
            ],
            env=env,
            cwd=self.folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def process_of(self, worker: str) -> psutil.Process | None:
        host, _, number = worker.rpartition("-")
        known = self._pids.get(worker)
        if known is None and host not in self._dark:
            for process in self._cluster.host(host).running.processes():
                if _number_inside(process.pid) == number:
                    known = self._pids[worker] = process
        with suppress(psutil.Error):
            return known if known is not None and known.status() != "zombie" else None
        return None

    def members(self) -> list[str]:
        """The workers that committed one of the last two steps, and are reached by the others."""
        away = {*self._cut, *self._dark}
        return [worker for worker in super().members() if _host_of(worker) not in away]

    # -- harm -------------------------------------------------------------------------------------

    def harm(self, how: str, worker: str) -> None:
        host = _host_of(worker)
        if how in SIGNALS:
            super().harm(how, worker)
        elif how == "agent":
            self._harmed.add(worker)
            process = self.process_of(worker)
            if process is not None:
                with suppress(psutil.NoSuchProcess):
                    psutil.Process(process.ppid()).kill()
        elif how == "cut" and host not in self._cut:
            self._cluster.cut(host)
            self._cut.append(host)
            self._was_cut = True
        elif how == "power" and host not in self._dark:
            self._cluster.kill(host)
            self._dark.append(host)

    def mend(self) -> None:
        """Have hosts that were cut off or lost their power back."""
        while self._cut:
            self._cluster.heal(self._cut.pop())
        while self._dark:
            self._cluster.start(self._dark.pop())

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        super().close()
        self.mend()

    def left(self) -> list[psutil.Process]:
        """The processes that are left; hosts that were cut off when the run ended have the time to give up."""
        deadline = time.monotonic() + (GIVE_UP_S if self._was_cut else 0.0)
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return found

    def _left(self) -> list[psutil.Process]:
        hosts = [host.name for host in self._cluster.hosts if host.name not in self._dark]
        pids = [
            pid
            for host in hosts
            for pid, line in self._cluster.processes(host)
            if line and "ssh" not in line[0]
        ]
        found = []
        for pid in pids:
            with suppress(psutil.Error):
                found.append(psutil.Process(pid))
        return found

    def shared_memory_left(self) -> list[str]:
        hosts = [host.name for host in self._cluster.hosts if host.name not in self._dark]
        return [f"{host}:{name}" for host in hosts for name in self._shared_files(host) - self._clean[host]]

    def _shared_files(self, host: str) -> frozenset[str]:
        return frozenset(self._cluster.run(["ls", "/dev/shm"], on=host).stdout.split())


def _host_of(worker: str) -> str:
    return worker.rpartition("-")[0]


def _number_inside(pid: int) -> str:
    """The number of a process in the innermost namespace it is in."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[-1]
    return ""
