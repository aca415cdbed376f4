"""Limits of control groups, of both versions, as a container and a service see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.topology.cgroup import cpu_quota_cores, memory_limit_bytes

GROUPS = {
    "container": {  # which sees its own group as the uppermost one
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cpu.max": "150000 100000",
        "sys/fs/cgroup/memory.max": "1073741824",
    },
    "container that is told another path": {
        "proc/self/cgroup": "0::/kubepods.slice/pod7/abc",
        "sys/fs/cgroup/cpu.max": "150000 100000",
        "sys/fs/cgroup/memory.max": "1073741824",
    },
    "service in a limited slice": {
        "proc/self/cgroup": "0::/user.slice/train.service",
        "sys/fs/cgroup/user.slice/cpu.max": "150000 100000",
        "sys/fs/cgroup/user.slice/train.service/cpu.max": "max 100000",
        "sys/fs/cgroup/user.slice/memory.max": "max",
        "sys/fs/cgroup/user.slice/train.service/memory.max": "1073741824",
    },
    "version 1": {
        "proc/self/cgroup": "5:memory:/docker/7\n2:cpu,cpuacct:/docker/7\n1:name=systemd:/",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824",
    },
}
NO_LIMIT = {
    "no groups": {},
    "version 2": {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cpu.max": "max 100000",
        "sys/fs/cgroup/memory.max": "max",
    },
    "version 1": {
        "proc/self/cgroup": "2:cpu:/",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    },
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


@pytest.mark.parametrize("name", GROUPS)
def test_the_least_limit_of_a_process_and_the_groups_above_it_counts(name: str, tmp_path: Path) -> None:
    write(tmp_path, GROUPS[name])
    assert cpu_quota_cores(tmp_path) == 1.5
    assert memory_limit_bytes(tmp_path) == 1 << 30


@pytest.mark.parametrize("name", NO_LIMIT)
def test_no_limit_is_none(name: str, tmp_path: Path) -> None:
    write(tmp_path, NO_LIMIT[name])
    assert cpu_quota_cores(tmp_path) is None
    assert memory_limit_bytes(tmp_path) is None
