"""Cables, cards and switches: the `ip` and `tc` lines that make them, and the call that carries them out."""

from __future__ import annotations

import ipaddress
import re
import subprocess

from testing.cluster.namespaces import entered

_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def new_switch(bridge: str) -> list[str]:
    return [f"link add {bridge} type bridge", f"link set {bridge} up"]


def cable(port: str, holder: int, card: str, address: str, bridge: str | None) -> list[str]:
    """A cable from a port of the switch to a card of a machine; without a bridge it ends in a dead socket."""
    # A machine that is started again keeps its card, or its neighbours would go on calling the old one.
    mac = ":".join(f"{byte:02x}" for byte in b"\x02\x00" + ipaddress.ip_interface(address).ip.packed[-4:])
    master = f" master {bridge}" if bridge else ""
    return [
        f"link add {port} type veth peer name {card} address {mac} netns {holder}",
        f"link set {port}{master} up",
    ]


def uplink(port: str, bridge: str, core: str) -> list[str]:
    """A cable between two switches: `port` at the first one, `port`-core at the other."""
    return [
        f"link add {port} type veth peer name {port}-core",
        f"link set {port} master {bridge} up",
        f"link set {port}-core master {core} up",
    ]


def shape(card: str, rate: str | None) -> list[str]:
    """Let a card send no faster than a rate such as `100mbit`; None takes the brake off."""
    if rate is None:
        # `replace` first, for `del` complains where nothing is.
        return [f"qdisc replace dev {card} root pfifo", f"qdisc del dev {card} root"]
    burst = max(16_384, bits_per_second(rate) // 8 // 250)  # 4 ms: a few packets, or a tick of a slow clock
    return [f"qdisc replace dev {card} root tbf rate {rate} burst {burst} latency 50ms"]


def bits_per_second(rate: str) -> int:
    match = re.fullmatch(r"(\d+)(kbit|mbit|gbit)", rate)
    if match is None:
        raise ValueError(f"a rate must look like 100mbit, got {rate!r}; units: {', '.join(_UNITS)}")
    return int(match[1]) * _UNITS[match[2]]


def carry_out(tool: str, lines: list[str], holder: int) -> None:
    """Run lines of `ip` or `tc` in the network of a machine."""
    with entered(holder, "net"):
        process = subprocess.Popen(
            [tool, "-batch", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    output, _ = process.communicate("\n".join(lines) + "\n", timeout=60)
    if process.returncode != 0:
        raise RuntimeError(f"{tool} failed: {output.strip()}\n" + "\n".join(lines))
