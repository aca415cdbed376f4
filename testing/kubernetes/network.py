"""The network of our own cluster: each pod has one card in a namespace of its own, and a cable to one switch."""

from __future__ import annotations

import shlex
from pathlib import Path

from testing.cluster import wires
from testing.cluster.namespaces import Machine

BRIDGE = "pods"
CARD = "eth0"
PREFIX_BITS = 16  # of the addresses of pods


def address_of(number: int) -> str:
    """Return the address of a pod by its number, which begins with 1."""
    return f"10.88.{number >> 8}.{number & 255}"


def card_script(address: str) -> list[str]:
    """Return the lines of a shell by which a pod says that its network is there, and takes up the card that comes.

    Its `/sys` is that of its own network, with the control groups of before.
    """
    return [
        "mkdir /mnt/cgroup",
        "mount --rbind /sys/fs/cgroup /mnt/cgroup",
        "mount -t sysfs sysfs /sys",
        "mount --move /mnt/cgroup /sys/fs/cgroup",
        "ip link set lo up",
        "echo made",
        "read -r _",
        f"ip address add {shlex.quote(address)}/{PREFIX_BITS} dev {CARD}",
        f"ip link set {CARD} up",
    ]


class PodNetwork:
    """One switch, in a namespace of its own. It dies with the thread that builds it."""

    def __init__(self, folder: Path) -> None:
        self._switch = Machine("echo made; read -r _; exec sleep infinity", folder / "switch.log")
        self._switch.wait_made()
        self._switch.plugged()
        self._do(wires.new_switch(BRIDGE))

    def close(self) -> None:
        """Take the switch away."""
        self._switch.kill()

    def plug(self, holder: int, number: int) -> None:
        """Lay a cable from the switch to a pod, whose namespaces this process holds."""
        self._do(wires.cable(_port(number), holder, CARD, f"{address_of(number)}/{PREFIX_BITS}", BRIDGE))

    def cut(self, number: int) -> None:
        """Have the cable of a pod carry nothing any more; neither end is told."""
        self._do([f"link set {_port(number)} nomaster"])

    def _do(self, lines: list[str]) -> None:
        wires.carry_out("ip", lines, self._switch.pid)


def _port(number: int) -> str:
    return f"pod{number}"
