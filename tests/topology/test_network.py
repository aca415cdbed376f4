import socket
from types import SimpleNamespace

import psutil
import pytest
from tests.topology.machines import machine

from weft.topology.host import NetworkCard
from weft.topology.network import card_towards, cards, source_address


def entry(family: int, address: str) -> SimpleNamespace:
    return SimpleNamespace(family=family, address=address)


def stats(speed: int = 0, mtu: int = 1500, isup: bool = True, flags: str = "up,running") -> SimpleNamespace:
    return SimpleNamespace(speed=speed, mtu=mtu, isup=isup, flags=flags)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    packet = getattr(socket, "AF_PACKET", -1)
    addresses = {
        "lo": [entry(socket.AF_INET, "127.0.0.1"), entry(socket.AF_INET6, "::1")],
        "eth0": [
            entry(socket.AF_INET6, "fe80::1%eth0"),
            entry(socket.AF_INET6, "fd00::1%eth0"),
            entry(socket.AF_INET, "10.0.0.1"),
            entry(packet, "00:11:22:33:44:55"),
        ],
        "eth1": [entry(socket.AF_INET6, "fe80::2%eth1")],
        "gone": [entry(socket.AF_INET, "10.9.9.9")],
        "docker0": [entry(socket.AF_INET, "172.17.0.1")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(
        psutil,
        "net_if_stats",
        lambda: {
            "lo": stats(mtu=65536, flags="up,loopback,running"),
            "eth0": stats(speed=25000, mtu=9000),
            "eth1": stats(),
            "docker0": stats(isup=False, flags="up,broadcast"),
        },
    )


@pytest.mark.usefixtures("made_up")
def test_cards_with_an_address_peers_can_use() -> None:
    assert cards() == (
        NetworkCard(name="lo", addresses=("127.0.0.1", "::1"), mtu=65536, loopback=True),
        NetworkCard(name="eth0", addresses=("10.0.0.1", "fd00::1"), speed_mbps=25000, mtu=9000),
        NetworkCard(name="docker0", addresses=("172.17.0.1",), up=False),
    )


def test_this_machine_has_a_loopback_and_routes_to_itself() -> None:
    host = machine(cards=cards())
    assert source_address("127.0.0.1") == "127.0.0.1"
    card = card_towards(host, "127.0.0.1")
    assert card is not None
    assert card.loopback


def test_no_such_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert source_address("x" * 70) is None  # no name at all: labels end at 63
    monkeypatch.setattr(socket, "getaddrinfo", fails)  # a real resolver may take seconds to say so
    assert source_address("host.invalid") is None
    assert card_towards(machine(), "host.invalid") is None
