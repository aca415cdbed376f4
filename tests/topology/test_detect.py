import os
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from weft.topology import detect as module
from weft.topology.cpulist import format_cpulist
from weft.topology.detect import detect
from weft.topology.host import Accelerator, Core, Host, NetworkCard


class Sysfs:
    """A made-up /sys and /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def core(self, package: int, core_id: int, cpus: Iterable[int]) -> None:
        cpus = list(cpus)
        for cpu in cpus:
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            self.write(f"{folder}/topology/physical_package_id", str(package))
            self.write(f"{folder}/topology/core_id", str(core_id))
            self.write(f"{folder}/topology/thread_siblings_list", format_cpulist(cpus))
            if cpu:
                self.write(f"{folder}/online", "1")

    def node(self, number: int, cpulist: str) -> None:
        self.write(f"sys/devices/system/node/node{number}/cpulist", cpulist)

    def detect(self, allowed: Iterable[int] = range(64)) -> Host:
        return detect(self.root, allowed=allowed)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No accelerators and no cards, whatever the machine has that runs the tests."""
    monkeypatch.setattr(module, "accelerators", lambda root: ())
    monkeypatch.setattr(module, "cards", lambda: ())
    monkeypatch.setattr(socket, "gethostname", lambda: "node7.lab.example")


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


@pytest.fixture
def two_sockets(sysfs: Sysfs) -> Sysfs:
    """Two sockets of two cores with two threads; packages 0 and 3, core ids with gaps."""
    for cpu, (package, core_id) in enumerate([(0, 0), (0, 8), (3, 0), (3, 8)]):
        sysfs.core(package, core_id, [cpu, cpu + 4])
    sysfs.node(0, "0-1,4-5")
    sysfs.node(1, "2-3,6-7")
    sysfs.write("proc/meminfo", "MemTotal:       263856128 kB\nMemFree: 1 kB")
    return sysfs


def test_two_sockets_with_hardware_threads(two_sockets: Sysfs) -> None:
    assert two_sockets.detect() == Host(
        name="node7",
        memory_bytes=263856128 * 1024,
        cores=(
            Core(socket=0, index=0, numa=0, cpus=(0, 4)),
            Core(socket=0, index=1, numa=0, cpus=(1, 5)),
            Core(socket=1, index=0, numa=1, cpus=(2, 6)),
            Core(socket=1, index=1, numa=1, cpus=(3, 7)),
        ),
    )


def test_core_ids_that_repeat_on_each_die(sysfs: Sysfs) -> None:
    for cpu in range(4):
        sysfs.core(0, cpu % 2, [cpu])
    assert [core.cpus for core in sysfs.detect().cores] == [(0,), (1,), (2,), (3,)]


def test_cores_of_a_numa_domain_follow_each_other(sysfs: Sysfs) -> None:
    for cpu in range(4):
        sysfs.core(0, cpu, [cpu])
    sysfs.node(0, "0,2")
    sysfs.node(1, "1,3")
    sysfs.node(2, "")  # memory alone
    host = sysfs.detect()
    assert [(core.index, core.numa, core.cpus) for core in host.cores] == [
        (0, 0, (0,)),
        (1, 0, (2,)),
        (2, 1, (1,)),
        (3, 1, (3,)),
    ]
    assert host.numa_domains == (0, 1)


def test_a_core_offline(two_sockets: Sysfs) -> None:
    # The kernel leaves the folder of a processor and takes its topology away, or says so in `online`.
    two_sockets.write("sys/devices/system/cpu/cpu1/online", "0")
    for file in (two_sockets.root / "sys/devices/system/cpu/cpu5/topology").iterdir():
        file.unlink()
    (two_sockets.root / "sys/devices/system/cpu/cpu5/topology").rmdir()
    assert [core.cpus for core in two_sockets.detect().cores_of(0)] == [(0, 4)]


def test_only_allowed_processors_count(two_sockets: Sysfs) -> None:
    host = two_sockets.detect(allowed=[3, 6, 7])
    assert host.cores == (
        Core(socket=0, index=0, numa=1, cpus=(6,)),
        Core(socket=0, index=1, numa=1, cpus=(3, 7)),
    )


def test_a_package_of_minus_one(sysfs: Sysfs) -> None:
    sysfs.core(-1, 0, [0])
    sysfs.core(-1, 1, [1])
    assert [(core.socket, core.index) for core in sysfs.detect().cores] == [(0, 0), (0, 1)]


def test_no_sysfs_is_one_socket(sysfs: Sysfs) -> None:
    host = sysfs.detect(allowed=[0, 2])
    assert [(core.socket, core.index, core.numa, core.cpus) for core in host.cores] == [
        (0, 0, 0, (0,)),
        (0, 1, 0, (2,)),
    ]
    assert host.memory_bytes == 0
    assert len(sysfs.detect(allowed=[]).cores) == os.cpu_count()


def test_an_accelerator_sits_on_the_socket_of_its_domain(
    two_sockets: Sysfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Accelerator(index=index, model="x", memory_bytes=1, numa=numa)
        for index, numa in enumerate([1, 0, None, 9])
    ]
    monkeypatch.setattr(module, "accelerators", lambda root: tuple(found))
    assert [accelerator.socket for accelerator in two_sockets.detect().accelerators] == [1, 0, None, None]
    # One socket leaves no choice.
    assert {accelerator.socket for accelerator in two_sockets.detect(allowed=[0]).accelerators} == {0}


def test_cards_come_along(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    card = NetworkCard(name="eth0", addresses=("10.0.0.1",))
    monkeypatch.setattr(module, "cards", lambda: (card,))
    assert sysfs.detect().cards == (card,)


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    host = detect()
    assert sum(len(core.cpus) for core in host.cores) == len(os.sched_getaffinity(0))
    assert host.memory_bytes > 0
    assert Host.from_json(host.to_json()) == host


def test_a_container_has_the_time_and_the_memory_of_its_group(sysfs: Sysfs) -> None:
    for cpu in range(4):
        sysfs.core(0, cpu, [cpu])
    sysfs.write("proc/meminfo", "MemTotal: 4194304 kB")
    sysfs.write("proc/self/cgroup", "0::/")
    sysfs.write("sys/fs/cgroup/memory.max", "1048576")
    for told, quota in (("150000 100000", 1.5), ("400000 100000", None)):  # as much as there are processors
        sysfs.write("sys/fs/cgroup/cpu.max", told)
        assert sysfs.detect(range(4)).cpu_quota_cores == quota
    assert sysfs.detect(range(4)).memory_bytes == 1048576
