import socket
import struct
from pathlib import Path

import psutil
import pytest
from tests.topology.machines import machine

from weft.topology import netlink
from weft.topology.host import NetworkCard
from weft.topology.network import card_towards, cards, source_address


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Four cards, as the kernel would list them; gives the root of their /sys."""
    up = netlink.IFF_UP | netlink.IFF_RUNNING
    links = (
        netlink.KernelLink(1, "lo", 65536, up | netlink.IFF_LOOPBACK),
        netlink.KernelLink(2, "eth0", 9000, up),
        netlink.KernelLink(3, "eth1", 1500, up),
        netlink.KernelLink(5, "docker0", 1500, netlink.IFF_UP),
    )
    owned = (
        (1, socket.AF_INET, "127.0.0.1"),
        (1, socket.AF_INET6, "::1"),
        (2, socket.AF_INET6, "fe80::1"),
        (2, socket.AF_INET6, "fd00::1"),
        (2, socket.AF_INET, "10.0.0.1"),
        (3, socket.AF_INET6, "fe80::2"),
        (4, socket.AF_INET, "10.9.9.9"),  # of a card that has vanished since
        (5, socket.AF_INET, "172.17.0.1"),
    )
    monkeypatch.setattr(netlink, "links", lambda: links)
    monkeypatch.setattr(netlink, "addresses", lambda: owned)
    for name, speed in (("eth0", "25000\n"), ("docker0", "-1\n")):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
        (tmp_path / "sys/class/net" / name / "speed").write_text(speed)
    return tmp_path


def test_cards_with_an_address_peers_can_use(made_up: Path) -> None:
    assert cards(made_up) == (
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


def test_netlink_says_what_psutil_says() -> None:
    ours = {card.name: card for card in cards()}
    stats = psutil.net_if_stats()
    for name, entries in psutil.net_if_addrs().items():
        expected = {entry.address for entry in entries if entry.family == socket.AF_INET}
        if expected:
            assert expected <= set(ours[name].addresses)
            assert (ours[name].mtu, ours[name].up) == (stats[name].mtu, stats[name].isup)


def test_a_netlink_dump_is_parted_into_messages() -> None:
    def message(kind: int, payload: bytes) -> bytes:
        return struct.pack("=IHHII", 16 + len(payload), kind, 0, 1, 0) + payload

    data = message(20, b"abcde") + b"\0\0\0" + message(3, b"")  # padded to four bytes
    assert list(netlink.messages(data)) == [(20, b"abcde"), (3, b"")]


def test_a_point_to_point_address_is_our_own_end() -> None:
    def attribute(kind: int, address: str) -> bytes:
        return struct.pack("=HH", 8, kind) + socket.inet_aton(address)

    payload = (
        struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, 7)
        + attribute(1, "10.0.0.2")
        + attribute(2, "10.0.0.1")
    )
    assert netlink.parse_address(payload) == (7, socket.AF_INET, "10.0.0.1")
