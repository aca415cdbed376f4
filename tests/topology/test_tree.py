from dataclasses import replace

from tests.topology.machines import GIB, machine

from weft.topology.host import NetworkCard
from weft.topology.tree import render_tree

CARDS = (
    NetworkCard(name="lo", addresses=("127.0.0.1",), loopback=True),
    NetworkCard(name="eth0", addresses=("10.0.0.1", "fd00::1"), speed_mbps=25000, mtu=9000),
    NetworkCard(name="docker0", addresses=("172.17.0.1",), up=False),
    NetworkCard(name="eth1", addresses=("192.168.0.1",), speed_mbps=100),
    NetworkCard(name="veth", addresses=("192.168.1.1",)),
)


def test_two_hosts() -> None:
    first = machine(
        "host1", numa_per_socket=2, accelerators=(0, 1, None), memory_bytes=252 * GIB, cards=CARDS
    )
    second = machine("host2", cores=(1,), threads=1, accelerators=(), memory_bytes=0)
    assert (
        render_tree([first, second], leader="host2", routes={"host1": "eth0"})
        == """\
host1  2 sockets, 32 cores, 64 threads, 252.0 GiB, 3 accelerators
├─ socket 0
│  ├─ NUMA 0  cores 0-7 (processors 0-7,32-39)
│  ├─ NUMA 1  cores 8-15 (processors 8-15,40-47)
│  └─ accelerator 0  NVIDIA H200, 140.0 GiB
├─ socket 1
│  ├─ NUMA 2  cores 0-7 (processors 16-23,48-55)
│  ├─ NUMA 3  cores 8-15 (processors 24-31,56-63)
│  └─ accelerator 1  NVIDIA H200, 140.0 GiB
├─ socket unknown
│  └─ accelerator 2  NVIDIA H200, 140.0 GiB
└─ network
   ├─ eth0  10.0.0.1, fd00::1  25 Gbit/s  MTU 9000  <- routes to the leader
   ├─ eth1  192.168.0.1  100 Mbit/s  MTU 1500
   └─ veth  192.168.1.1  MTU 1500
host2 (leader)  1 socket, 1 core, 1 thread
└─ socket 0
   └─ NUMA 0  cores 0 (processors 0)"""
    )


def test_equal_branches_are_drawn_apart() -> None:
    twin = NetworkCard(name="eth0", addresses=("10.0.0.1",))
    host = replace(machine(cores=(1,), threads=1, accelerators=(), memory_bytes=0), cards=(twin, twin))
    assert render_tree([host]).endswith(
        "└─ network\n   ├─ eth0  10.0.0.1  MTU 1500\n   └─ eth0  10.0.0.1  MTU 1500"
    )


def test_a_container_shows_the_time_it_may_use() -> None:
    host = replace(machine(cores=(4,), threads=1, accelerators=(), memory_bytes=8 * GIB), cpu_quota_cores=1.5)
    assert render_tree([host]).startswith("host1  1 socket, 4 cores, 4 threads, time for 1.5, 8.0 GiB\n")


def test_no_hosts() -> None:
    assert render_tree([]) == ""
