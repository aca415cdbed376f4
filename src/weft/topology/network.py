"""The network cards of this machine, and which of them leads to another host.

A wrong card is the commonest way to lose most of the speed of a cluster, so the card is not guessed
from names: the kernel is asked which address it would send from.
"""

from __future__ import annotations

import socket

from weft.topology.host import Host, NetworkCard


def cards() -> tuple[NetworkCard, ...]:
    """The cards that have an address, as the kernel lists them."""
    import psutil  # here, because it takes longer to import than the rest of the package

    stats = psutil.net_if_stats()
    found = []
    for name, entries in psutil.net_if_addrs().items():
        addresses = _addresses([(entry.family, entry.address) for entry in entries])
        if not addresses or name not in stats:  # a card may vanish between the two calls
            continue
        card = stats[name]
        found.append(
            NetworkCard(
                name=name,
                addresses=addresses,
                speed_mbps=card.speed or None,
                mtu=card.mtu,
                up=card.isup,
                loopback="loopback" in card.flags.split(","),
            )
        )
    return tuple(found)


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
