"""The kernel's own list of network cards and addresses, asked over netlink.

psutil gives the same, but importing it takes longer than all else an agent does before it answers.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40

_RTM_NEWLINK, _RTM_GETLINK = 16, 18
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_NLM_F_DUMP_REQUEST = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_IFLA_IFNAME, _IFLA_MTU = 3, 4
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # family, kind, index, flags, change
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_ATTRIBUTE = struct.Struct("=HH")  # length, type


@dataclass(frozen=True)
class KernelLink:
    """One network interface."""

    index: int
    name: str
    mtu: int
    flags: int


def links() -> tuple[KernelLink, ...]:
    """Every interface, in the kernel's order."""
    return tuple(parse_link(payload) for payload in _dump(_RTM_GETLINK, _RTM_NEWLINK, _LINK.size))


def addresses() -> tuple[tuple[int, int, str], ...]:
    """(interface, family, address) of every address, in the kernel's order."""
    return tuple(parse_address(payload) for payload in _dump(_RTM_GETADDR, _RTM_NEWADDR, _ADDRESS.size))


def parse_link(payload: bytes) -> KernelLink:
    _, _, index, flags, _ = _LINK.unpack_from(payload)
    attributes = _attributes(payload[_LINK.size :])
    name = attributes[_IFLA_IFNAME].rstrip(b"\0").decode()
    return KernelLink(index=index, name=name, mtu=struct.unpack("=I", attributes[_IFLA_MTU])[0], flags=flags)


def parse_address(payload: bytes) -> tuple[int, int, str]:
    family, _, _, _, index = _ADDRESS.unpack_from(payload)
    attributes = _attributes(payload[_ADDRESS.size :])
    # On a point-to-point card the plain address is the peer's, the local one ours.
    packed = attributes.get(_IFA_LOCAL) or attributes[_IFA_ADDRESS]
    return index, family, socket.inet_ntop(family, packed)


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, payload) of each message in what the kernel sent."""
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _dump(request: int, wanted: int, body: int) -> Iterator[bytes]:
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + body, request, _NLM_F_DUMP_REQUEST, 1, 0) + bytes(body))
        while True:
            for kind, payload in messages(kernel.recv(1 << 16)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    raise OSError(code, os.strerror(code))
                if kind == wanted:
                    yield payload


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind & 0x3FFF] = data[_ATTRIBUTE.size : length]
        data = data[_aligned(max(length, _ATTRIBUTE.size)) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3
