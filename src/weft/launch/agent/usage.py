"""The use that a run makes of its host: processor, memory, disk, network, accelerators, sampled every two seconds.

The processes of a run carry its id in their environment, whatever started them. The environment of a process is read
twice at most. The network is the host's: no kernel counts it for single processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.launch.agent.nvml import DeviceUse, NvidiaDevices

SAMPLE_S = 2.0  # between two samples
LONGEST_S = 60.0  # between two samples of which a rate is still one
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass
class _Seen:
    """A process of the run when it was last looked at."""

    ticks: int = 0
    disk_bytes: int = 0
    anon_bytes: int = 0
    shared_bytes: int = 0
    cores: frozenset[int] = field(default_factory=frozenset)


class UsageSampler:
    """Samples one run on this host; `marker` is what its processes have in their environment."""

    def __init__(self, marker: str, *, proc: str = "/proc") -> None:
        self._marker, self._proc = marker.encode(), proc
        self._ours: dict[str, _Seen] = {}
        self._others: set[str] = set()
        self._doubted: set[str] = (
            set()
        )  # looked at once: a process has its parent's environment until it is executed
        self._visible: str | None = None  # CUDA_VISIBLE_DEVICES of the run's processes
        self._devices = NvidiaDevices()
        self._sampled_at = 0.0
        self._network_bytes = 0
        self._memory_bytes = _memory_limit(proc)
        self.due_at = 0.0  # monotonic seconds

    def sample(self, now: float) -> dict[str, float] | None:
        """Return the use since the last sample; None if there was none, or no process of the run is there."""
        self.due_at = now + SAMPLE_S
        elapsed_s, self._sampled_at = now - self._sampled_at, now
        before, network_before = self._ours, self._network_bytes
        self._find()
        self._network_bytes = self._network()
        if not self._ours or not before or not 0 < elapsed_s < LONGEST_S:
            return None
        ticks = sum(seen.ticks - _before(before, pid).ticks for pid, seen in self._ours.items())
        disk = sum(seen.disk_bytes - _before(before, pid).disk_bytes for pid, seen in self._ours.items())
        cores = len(frozenset[int]().union(*(seen.cores for seen in self._ours.values()))) or 1
        memory = sum(seen.anon_bytes for seen in self._ours.values())
        memory += max(seen.shared_bytes for seen in self._ours.values())
        values = {
            "cpu": max(0.0, ticks / _TICKS / elapsed_s / cores),
            "memory_bytes": float(memory),
            "memory": memory / self._memory_bytes,
            "disk_bytes_s": max(0.0, disk / elapsed_s),
            "net_bytes_s": max(0.0, (self._network_bytes - network_before) / elapsed_s),
        }
        values |= _device_values(self._devices.use(self._visible))
        return {name: round(value, 4) for name, value in values.items()}

    # -- processes --------------------------------------------------------------------------------

    def _find(self) -> None:
        pids = {name for name in os.listdir(self._proc) if name.isdigit()}
        self._others &= pids
        ours, doubted = {}, set()
        for pid in pids - self._others:
            if pid in self._ours or self._carries_marker(pid):
                seen = self._look(pid)
                if seen is not None:
                    ours[pid] = seen
            elif pid in self._doubted:
                self._others.add(pid)
            else:
                doubted.add(pid)
        self._ours, self._doubted = ours, doubted

    def _carries_marker(self, pid: str) -> bool:
        variables = self._read(pid, "environ").split(b"\0")
        if self._marker not in variables:
            return False
        shown = [text for text in variables if text.startswith(b"CUDA_VISIBLE_DEVICES=")]
        if shown:
            self._visible = shown[0].partition(b"=")[2].decode(errors="replace")
        return True

    def _look(self, pid: str) -> _Seen | None:
        try:
            stat = self._read(pid, "stat").rpartition(b")")[2].split()
            resident, shared = map(int, self._read(pid, "statm").split()[1:3])
            counters = dict(line.split(b": ") for line in self._read(pid, "io").splitlines())
            disk = int(counters.get(b"read_bytes", 0)) + int(counters.get(b"write_bytes", 0))
            ticks = int(stat[11]) + int(stat[12])
            cores = frozenset(os.sched_getaffinity(int(pid)))
        except (OSError, ValueError, IndexError):
            return None
        return _Seen(ticks, disk, (resident - shared) * _PAGE_BYTES, shared * _PAGE_BYTES, cores)

    def _read(self, pid: str, name: str) -> bytes:
        try:
            with open(f"{self._proc}/{pid}/{name}", "rb") as file:
                return file.read()
        except OSError:
            return b""

    def _network(self) -> int:
        """Return the bytes that all cards but loopback have received and sent."""
        total = 0
        for line in self._read("net", "dev").splitlines()[2:]:
            card, _, counters = line.partition(b":")
            numbers = counters.split()
            if card.strip() != b"lo" and len(numbers) > 8:
                total += int(numbers[0]) + int(numbers[8])
        return total


def _before(seen: dict[str, _Seen], pid: str) -> _Seen:
    return seen.get(pid) or _Seen()


def _device_values(devices: Iterable[DeviceUse]) -> dict[str, float]:
    found = list(devices)
    if not found:
        return {}
    used = sum(device.used_bytes for device in found)
    return {
        "gpu": sum(device.busy for device in found) / len(found),
        "gpu_memory_bytes": float(used),
        "gpu_memory": used / max(1, sum(device.total_bytes for device in found)),
    }


def _memory_limit(proc: str) -> int:
    """Return the memory of this host, or of the container it is."""
    limits = []
    for path, unit in ((f"{proc}/meminfo", 1024), ("/sys/fs/cgroup/memory.max", 1)):
        try:
            with open(path, "rb") as file:
                limits += [int(word) * unit for word in file.readline().split() if word.isdigit()]
        except OSError:
            continue
    return min(limits, default=1)


def now_ms() -> int:
    """Return the time in ms since 1970, as points have it."""
    return time.time_ns() // 1_000_000
