"""Hosts as a tree a person can read: sockets, NUMA domains, accelerators, network cards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.text import format_size, format_speed, plural
from weft.topology.cpulist import format_cpulist
from weft.topology.host import Accelerator, Core, Host, NetworkCard


@dataclass(frozen=True)
class Branch:
    """A line of the tree with what hangs below it."""

    text: str
    below: tuple[Branch, ...] = ()


def render_tree(
    hosts: Sequence[Host], *, leader: str | None = None, routes: Mapping[str, str] | None = None
) -> str:
    """One tree per host. `routes` names, for each host, the card that leads to the leader."""
    routes = routes or {}
    trees = [_host(host, leads=host.name == leader, route=routes.get(host.name)) for host in hosts]
    return "\n".join(line for tree in trees for line in [tree.text, *_lines(tree.below)])


def _lines(branches: Sequence[Branch], indent: str = "") -> Iterator[str]:
    for branch in branches:
        last = branch is branches[-1]
        yield f"{indent}{'└─' if last else '├─'} {branch.text}"
        yield from _lines(branch.below, indent + ("   " if last else "│  "))


def _host(host: Host, leads: bool, route: str | None) -> Branch:
    facts = [
        plural(len(host.sockets), "socket"),
        plural(len(host.cores), "core"),
        plural(sum(len(core.cpus) for core in host.cores), "thread"),
        f"time for {host.cpu_quota_cores:g}" if host.cpu_quota_cores is not None else "",
        format_size(host.memory_bytes, unit="GiB") if host.memory_bytes else "",
        plural(len(host.accelerators), "accelerator") if host.accelerators else "",
    ]
    below = [_socket(host, socket) for socket in host.sockets]
    if unplaced := [item for item in host.accelerators if item.socket not in host.sockets]:
        below.append(Branch("socket unknown", tuple(map(_accelerator, unplaced))))
    if cards := [card for card in host.cards if card.up and not card.loopback]:
        below.append(Branch("network", tuple(_card(card, card.name == route) for card in cards)))
    return Branch(f"{host.name}{' (leader)' * leads}  {', '.join(filter(None, facts))}", tuple(below))


def _socket(host: Host, socket: int) -> Branch:
    cores = host.cores_of(socket)
    domains = sorted({core.numa for core in cores})
    below = [_numa(numa, [core for core in cores if core.numa == numa]) for numa in domains]
    below += [_accelerator(item) for item in host.accelerators if item.socket == socket]
    return Branch(f"socket {socket}", tuple(below))


def _numa(numa: int, cores: Iterable[Core]) -> Branch:
    indexes = format_cpulist(core.index for core in cores)
    cpus = format_cpulist(cpu for core in cores for cpu in core.cpus)
    return Branch(f"NUMA {numa}  cores {indexes} (processors {cpus})")


def _accelerator(accelerator: Accelerator) -> Branch:
    memory = f", {format_size(accelerator.memory_bytes, unit='GiB')}" if accelerator.memory_bytes else ""
    return Branch(f"accelerator {accelerator.index}  {accelerator.model}{memory}")


def _card(card: NetworkCard, routes: bool) -> Branch:
    parts = [
        card.name,
        ", ".join(card.addresses),
        format_speed(card.speed_mbps) if card.speed_mbps else "",
        f"MTU {card.mtu}",
        "<- routes to the leader" if routes else "",
    ]
    return Branch("  ".join(filter(None, parts)))
