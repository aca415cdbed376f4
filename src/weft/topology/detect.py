"""Looks at this machine and describes it as a `Host`: what the kernel says under /sys and /proc.

Only processors this process may use are counted, so that a container or a batch job sees its share; where its share is
one of time and not of processors, it is told beside them.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from weft.topology.accelerators import accelerators
from weft.topology.cgroup import cpu_quota_cores, memory_limit_bytes
from weft.topology.cpulist import parse_cpulist
from weft.topology.host import Accelerator, Core, Host
from weft.topology.network import cards

# Where a core sits: its package and NUMA domain as the kernel numbers them, and the processors that share it.
Seat = tuple[int, int, tuple[int, ...]]


def detect(root: Path = Path("/"), *, allowed: Iterable[int] | None = None) -> Host:
    """Describe this machine. `root` holds sys/ and proc/; `allowed` are the processors to count."""
    usable = frozenset(_affinity() if allowed is None else allowed)
    cores = _cores(root, usable) or _plain_cores(usable)
    return Host(
        name=socket.gethostname().partition(".")[0],
        cores=cores,
        memory_bytes=_memory_bytes(root),
        cpu_quota_cores=_quota(root, sum(len(core.cpus) for core in cores)),
        accelerators=tuple(_seated(accelerator, cores) for accelerator in accelerators(root)),
        cards=cards(),
    )


def _affinity() -> Iterable[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def _cores(root: Path, usable: frozenset[int]) -> tuple[Core, ...]:
    """The cores the kernel describes, or none where it does not (some containers hide /sys)."""
    numa_of = _numa_domains(root)
    # Core ids would not do: they repeat from die to die.
    found: dict[Seat, list[int]] = {}
    for cpu in sorted(usable & _described(root)):
        topology = _cpu(root, cpu) / "topology"
        package = max(0, _number(topology / "physical_package_id"))  # -1 on some ARM machines
        siblings = parse_cpulist(_text(topology / "thread_siblings_list")) or (cpu,)
        found.setdefault((package, numa_of.get(cpu, 0), siblings), []).append(cpu)
    return _numbered(found)


def _numbered(found: Mapping[Seat, Iterable[int]]) -> tuple[Core, ...]:
    """Cores with their usable processors, sockets and cores counted from 0 without gaps.

    Cores of a NUMA domain follow each other, as they do in the numbering Open MPI uses.
    """
    by_package = groupby(sorted(found), key=lambda seat: seat[0])
    return tuple(
        Core(socket=socket_index, index=index, numa=seat[1], cpus=tuple(found[seat]))
        for socket_index, (_, seats) in enumerate(by_package)
        for index, seat in enumerate(seats)
    )


def _plain_cores(usable: Collection[int]) -> tuple[Core, ...]:
    """One socket with a core for each processor."""
    cpus = sorted(usable) or range(os.cpu_count() or 1)
    return tuple(Core(socket=0, index=index, numa=0, cpus=(cpu,)) for index, cpu in enumerate(cpus))


def _described(root: Path) -> set[int]:
    """Processors that are online and have a topology; the kernel takes it away from those that are not."""
    names = (path.parent.name for path in (root / "sys/devices/system/cpu").glob("cpu*/topology"))
    cpus = {int(name[3:]) for name in names if re.fullmatch(r"cpu[0-9]+", name)}
    # The first processor often has no switch: it cannot be taken offline.
    return {cpu for cpu in cpus if _text(_cpu(root, cpu) / "online") != "0"}


def _numa_domains(root: Path) -> dict[int, int]:
    """The NUMA domain of each processor."""
    nodes = (root / "sys/devices/system/node").glob("node[0-9]*")
    return {cpu: int(node.name[4:]) for node in nodes for cpu in parse_cpulist(_text(node / "cpulist"))}


def _seated(accelerator: Accelerator, cores: Collection[Core]) -> Accelerator:
    """The accelerator with the socket of its NUMA domain; on one socket there is no other choice."""
    sockets = {core.socket for core in cores}
    near = {core.socket for core in cores if core.numa == accelerator.numa}
    candidates = near if len(sockets) > 1 else sockets
    return replace(accelerator, socket=min(candidates) if candidates else None)


def _memory_bytes(root: Path) -> int:
    match = re.search(r"^MemTotal:\s+([0-9]+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    known = int(match[1]) * 1024 if match else 0
    limit = memory_limit_bytes(root)
    return known if limit is None or not known else min(known, limit)


def _quota(root: Path, processors: int) -> float | None:
    """The processor time of this process in cores, where it is less than what its processors have."""
    quota = cpu_quota_cores(root)
    return quota if quota is not None and quota < processors else None


def _cpu(root: Path, cpu: int) -> Path:
    return root / "sys/devices/system/cpu" / f"cpu{cpu}"


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else 0


def _text(path: Path) -> str:
    """The content of a small file; empty where it is missing or the kernel refuses."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
