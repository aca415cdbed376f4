"""The network cards of this machine, and which of them leads to another host.

A wrong card is the commonest way to lose most of the speed of a cluster, so the card is not guessed
from names: the kernel is asked which address it would send from.
"""

from __future__ import annotations

import socket
from pathlib import Path

from weft.topology import netlink
from weft.topology.host import Host, NetworkCard


def cards(root: Path = Path("/")) -> tuple[NetworkCard, ...]:
    """The cards that have an address, as the kernel lists them."""
    owned = netlink.addresses()
    found = []
    for link in netlink.links():
        addresses = _addresses([(family, address) for index, family, address in owned if index == link.index])
        if addresses:
            found.append(
                NetworkCard(
                    name=link.name,
                    addresses=addresses,
                    speed_mbps=_speed_mbps(root / "sys/class/net" / link.name / "speed"),
                    mtu=link.mtu,
                    up=bool(link.flags & netlink.IFF_UP and link.flags & netlink.IFF_RUNNING),
                    loopback=bool(link.flags & netlink.IFF_LOOPBACK),
                )
            )
    return tuple(found)


def _speed_mbps(file: Path) -> int | None:
    """Return what the driver claims; virtual cards and unplugged ones give -1, or an error."""
    try:
        speed = int(file.read_text())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None


def source_address(to: str) -> str | None:
    """The local address from which the kernel reaches `to`, or None where it has no route or no such name."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(to, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # a datagram socket only looks up the route: no packet leaves
            return _without_scope(probe.getsockname()[0])
    except (OSError, UnicodeError):  # UnicodeError: a label too long for a name
        return None


def card_towards(host: Host, to: str) -> NetworkCard | None:
    """The card of `host`, which must be this machine, that leads to `to`."""
    address = source_address(to)
    return host.card_with(address) if address else None


def _addresses(entries: list[tuple[int, str]]) -> tuple[str, ...]:
    """The addresses peers can use, IPv4 first."""
    v4 = [address for family, address in entries if family == socket.AF_INET]
    v6 = [_without_scope(address) for family, address in entries if family == socket.AF_INET6]
    # A link-local address means nothing to a peer without the scope, which is ours alone.
    return tuple(v4 + [address for address in v6 if not address.lower().startswith("fe80:")])


def _without_scope(address: str) -> str:
    return address.partition("%")[0]
