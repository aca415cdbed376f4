"""A comparison of hosts, which should be alike.

Synchronous training runs at the pace of its weakest host, so a difference is worth a stop. Each host is
compared with the first of the list. Network cards are left to the network checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft.errors import TopologyError
from weft.text import format_size
from weft.topology.host import Host

# The kernel and firmware keep a little memory back, and not always the same amount.
MEMORY_TOLERANCE = 0.05
ACCELERATOR_MEMORY_TOLERANCE = 0.02


@dataclass(frozen=True)
class HostDifference:
    """One thing in which a host differs from the first."""

    host: str
    what: str
    expected: str
    got: str


def differences(hosts: Sequence[Host]) -> tuple[HostDifference, ...]:
    """All differences from the first host, host by host."""
    return tuple(
        HostDifference(host.name, what, expected, got)
        for host in hosts[1:]
        for what, expected, got in _compare(hosts[0], host)
    )


def verify_alike(hosts: Sequence[Host], allow_uneven: bool) -> None:
    """Raise unless all hosts are alike, or differences were allowed."""
    found = differences(hosts)
    if not found or allow_uneven:
        return
    told = [f"{item.host}: {item.what} {item.got} ({hosts[0].name} has {item.expected})" for item in found]
    raise TopologyError(
        f"hosts must be alike, got {', '.join(told)}; mend the host list or use --allow-uneven"
    )


def _compare(first: Host, other: Host) -> Iterator[tuple[str, str, str]]:
    for what, describe in _FACTS.items():
        expected, got = describe(first), describe(other)
        if expected and got and expected != got:
            yield what, expected, got
    for what, sizes, tolerance in _SIZES:
        pairs = zip(sorted(sizes(first)), sorted(sizes(other)), strict=False)
        apart = [pair for pair in pairs if abs(pair[0] - pair[1]) > tolerance * max(pair)]
        for expected_bytes, got_bytes in apart[:1]:
            yield what, format_size(expected_bytes, unit="GiB"), format_size(got_bytes, unit="GiB")


def _cores_per_socket(host: Host) -> str:
    counts = [len(host.cores_of(socket)) for socket in host.sockets]
    return str(counts[0]) if len(set(counts)) == 1 else "+".join(map(str, counts))


def _threads_per_core(host: Host) -> str:
    return " or ".join(map(str, sorted({len(core.cpus) for core in host.cores})))


def _models(host: Host) -> str:
    return " and ".join(sorted({accelerator.model for accelerator in host.accelerators}))


# An empty text says nothing: a host without accelerators is told once, by their number.
_FACTS: dict[str, Callable[[Host], str]] = {
    "sockets": lambda host: str(len(host.sockets)),
    "cores per socket": _cores_per_socket,
    "hardware threads per core": _threads_per_core,
    "NUMA domains": lambda host: str(len(host.numa_domains)),
    "accelerators": lambda host: str(len(host.accelerators)),
    "accelerator model": _models,
}

_SIZES: tuple[tuple[str, Callable[[Host], list[int]], float], ...] = (
    (
        "accelerator memory",
        lambda host: [item.memory_bytes for item in host.accelerators if item.memory_bytes],
        ACCELERATOR_MEMORY_TOLERANCE,
    ),
    ("memory", lambda host: [host.memory_bytes] if host.memory_bytes else [], MEMORY_TOLERANCE),
)
