"""Rules that name network cards: `--interface`, `GLOO_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME`.

Gloo and our own option take names. NCCL takes beginnings of names, `=` for whole names, `^` for all but these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.topology.host import Host, NetworkCard

INTERFACE = "--interface"
GLOO = "GLOO_SOCKET_IFNAME"
NCCL = "NCCL_SOCKET_IFNAME"


@dataclass(frozen=True)
class CardRule:
    """A choice of cards by name, made by the user."""

    setting: str  # what it was made with
    text: str  # as it was written
    names: tuple[str, ...]
    exact: bool = True
    but: bool = False  # all cards except these

    def __str__(self) -> str:
        return f"{self.setting}{' ' if self.setting.startswith('--') else '='}{self.text}"

    def cards(self, host: Host) -> tuple[NetworkCard, ...]:
        """The cards of a host that are meant. Loopback is a choice only where it is named."""
        return tuple(card for card in host.cards if self._means(card))

    def _means(self, card: NetworkCard) -> bool:
        named = any(card.name == name if self.exact else card.name.startswith(name) for name in self.names)
        return card.up and (not named and not card.loopback if self.but else named)


def card_rules(interface: str | None, variables: Mapping[str, str]) -> tuple[CardRule, ...]:
    """Every choice of cards in force. Variables count because workers get them as they are."""
    rules = []
    if interface:
        rules.append(CardRule(INTERFACE, interface, (interface,)))
    if text := variables.get(GLOO):
        rules.append(CardRule(GLOO, text, _names(text)))
    if text := variables.get(NCCL):
        rest = text.removeprefix("^")
        rules.append(
            CardRule(NCCL, text, _names(rest.removeprefix("=")), exact=rest.startswith("="), but=rest != text)
        )
    return tuple(rules)


def _names(text: str) -> tuple[str, ...]:
    """NCCL also takes `eth0:4000`, a card and a port."""
    return tuple(name.strip().partition(":")[0] for name in text.split(",") if name.strip())
