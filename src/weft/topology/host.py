"""A host, as data: cores, NUMA domains, accelerators, network cards.

Nothing here touches the machine. `detect.py` fills these in; the planner, the checks and the
printed tree read them. Every class turns into plain JSON with `to_json` and back with `from_json`,
because a host describes itself to the launcher over a wire.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Core:
    """One physical core. `index` counts within its socket, as rank files do."""

    socket: int
    index: int
    numa: int
    cpus: tuple[int, ...]  # logical processors (hardware threads), as the kernel numbers them


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One GPU, in the order CUDA numbers them by bus id."""

    index: int
    model: str
    memory_bytes: int
    socket: int | None = None  # None where the machine does not say
    numa: int | None = None
    bus_id: str = ""


@dataclass(frozen=True, kw_only=True)
class NetworkCard:
    """One network interface with an address."""

    name: str
    addresses: tuple[str, ...]  # IPv4 first
    speed_mbps: int | None = None  # None where the driver does not say (virtual cards)
    mtu: int = 1500
    up: bool = True
    loopback: bool = False


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine, as it describes itself."""

    name: str
    cores: tuple[Core, ...]
    memory_bytes: int = 0
    cpu_quota_cores: float | None = None  # processor time it may use, where less than its processors have
    accelerators: tuple[Accelerator, ...] = ()
    cards: tuple[NetworkCard, ...] = ()

    @property
    def sockets(self) -> tuple[int, ...]:
        return tuple(sorted({core.socket for core in self.cores}))

    @property
    def numa_domains(self) -> tuple[int, ...]:
        return tuple(sorted({core.numa for core in self.cores}))

    def cores_of(self, socket: int) -> tuple[Core, ...]:
        return tuple(core for core in self.cores if core.socket == socket)

    def card_with(self, address: str) -> NetworkCard | None:
        """The card that carries this address."""
        return next((card for card in self.cards if address in card.addresses), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Host:
        return cls(
            name=data["name"],
            memory_bytes=data["memory_bytes"],
            cpu_quota_cores=data.get("cpu_quota_cores"),
            cores=tuple(Core(**{**core, "cpus": tuple(core["cpus"])}) for core in data["cores"]),
            accelerators=tuple(Accelerator(**item) for item in data["accelerators"]),
            cards=tuple(
                NetworkCard(**{**card, "addresses": tuple(card["addresses"])}) for card in data["cards"]
            ),
        )
