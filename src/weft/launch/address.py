"""The address at which the leader is met, and the card each host uses for it. Never by looking up a host's name.

A name may resolve to loopback, or to the slow card. What counts is which of the leader's addresses every
other host can connect to, and from which card the kernel routes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.errors import ConnectError
from weft.launch.agent.survey import Survey
from weft.topology.host import Host, NetworkCard


@dataclass(frozen=True, kw_only=True)
class Reach:
    """One host's try to connect to one address of the leader."""

    address: str
    source: str | None  # the caller's own idea of its address
    seen_as: str | None  # the leader's idea of it; another one behind NAT
    error: str | None = None


def candidates(leader: Survey, interface: str | None) -> tuple[str, ...]:
    """The leader's addresses worth trying, best first: where ssh reached it, then its fastest cards."""
    cards = [card for card in leader.host.cards if card.up and not card.loopback]
    if interface is not None:
        cards = [card for card in cards if card.name == interface]
        if not cards:
            known = ", ".join(card.name for card in leader.host.cards if not card.loopback)
            raise ConnectError(
                f"--interface must be a card of {leader.host.name} that is up, got {interface!r}; it has {known}"
            )
    cards.sort(key=lambda card: -(card.speed_mbps or 0))
    addresses = [address for card in cards for address in card.addresses]
    addresses.sort(key=lambda address: ":" in address)  # IPv4 first; the sort is stable
    if leader.reached_at in addresses:
        addresses.remove(leader.reached_at)
        addresses.insert(0, leader.reached_at)
    return tuple(addresses)


def choose_address(leader: str, tried: Sequence[str], reached: Mapping[str, Sequence[Reach]]) -> str:
    """The first of the leader's addresses that every other host can connect to."""
    good = {
        host: {reach.address for reach in reaches if reach.error is None} for host, reaches in reached.items()
    }
    for address in tried:
        if all(address in addresses for addresses in good.values()):
            return address
    if not tried:
        raise ConnectError(
            f"{leader} must have a network card that is up, got only loopback; check `ip addr` there"
        )
    lines = [
        f"{host} reaches {', '.join(sorted(good[host])) or 'none'}"
        + "".join(f"; {reach.address}: {reach.error}" for reach in reaches if reach.error)
        for host, reaches in reached.items()
    ]
    raise ConnectError(
        f"every host must reach one same address of the leader {leader}, got none of {', '.join(tried)} "
        f"({' | '.join(lines)}); open the firewall between them or name the card with --interface"
    )


def card_used(host: Host, source: str | None) -> NetworkCard | None:
    """The card from which a host reached the leader."""
    return host.card_with(source) if source else None
