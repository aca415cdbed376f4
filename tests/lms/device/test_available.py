"""Host memory that a container leaves, by control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.lms.device.available import available_host_bytes
from weft.lms.limit import parse_limit

GIB = 1 << 30


def write(root: Path, **files: object) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, **{"proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {50 << 20} kB"})
    return tmp_path


def test_without_a_container_the_system_decides(root: Path) -> None:
    assert available_host_bytes(root) == 50 * GIB
    write(root, **{"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"})
    assert available_host_bytes(root) == 50 * GIB


@pytest.mark.parametrize("place", ["pod/job", "pod", ""])
def test_the_tightest_group_above_decides(root: Path, place: str) -> None:
    group = f"sys/fs/cgroup/{place}".rstrip("/")
    write(root, **{"proc/self/cgroup": "0::/pod/job", "sys/fs/cgroup/pod/job/memory.max": "max"})
    write(root, **{f"{group}/memory.max": 8 * GIB, f"{group}/memory.current": 3 * GIB})
    assert available_host_bytes(root) == 5 * GIB
    write(root, **{f"{group}/memory.stat": f"anon {2 * GIB}\ninactive_file {GIB}"})
    assert available_host_bytes(root) == 6 * GIB  # pages of files are dropped when memory is needed
    write(root, **{f"{group}/memory.current": 9 * GIB, f"{group}/memory.stat": ""})
    assert available_host_bytes(root) == 0


def test_groups_of_the_first_version(root: Path) -> None:
    write(root, **{"proc/self/cgroup": "4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n0::/"})
    group = "sys/fs/cgroup/memory"  # inside of a container its own group is the root of the mount
    write(root, **{f"{group}/memory.limit_in_bytes": (1 << 63) - 4096, f"{group}/memory.usage_in_bytes": GIB})
    assert available_host_bytes(root) == 50 * GIB
    write(
        root, **{f"{group}/memory.limit_in_bytes": 4 * GIB, f"{group}/memory.stat": "total_inactive_file 0"}
    )
    assert available_host_bytes(root) == 3 * GIB


def test_nothing_that_can_be_read_is_the_whole_machine(tmp_path: Path) -> None:
    assert available_host_bytes(tmp_path) > 0
    write(tmp_path, **{"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "many"})
    assert available_host_bytes(tmp_path) > 0
    assert 0 < available_host_bytes() < 1 << 60


def test_limits_with_exponents() -> None:
    assert parse_limit("16e9") == 16 * 10**9
    assert parse_limit("1.6E+10") == 16 * 10**9
