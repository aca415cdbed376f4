"""A cluster of virtual hosts on this machine: real addresses, real ssh, real cut cables, real slow links.

    with VirtualCluster(4, rate="1gbit") as cluster:
        cluster.run(["ssh", "-F", cluster.ssh_config, "h2", "hostname"])

    VirtualCluster(4, rate="1gbit", racks=(2, 2), uplink="1gbit")    # h1 and h2 in one rack, h3 and h4 in another

Hosts h1, h2, ... and `head`, where commands run unless told otherwise, hang on one switch in a machine of its
own. Each host has its own name, network, processes, /run, /dev/shm, /proc and /sys. They share the other files
of this machine, and a home folder made for them.
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil
from testing.cluster import scratch, ssh, wires
from testing.cluster.namespaces import Machine, entered, missing_rights
from testing.cluster.require import missing_tools
from testing.cluster.waiting import wait_until
from testing.forking.shown import stands_for_fork

HEAD = "head"


def missing() -> str | None:
    """Why no cluster can be built here, if so."""
    tools = ["ip", "tc", "ssh", "sshd", "ssh-keygen", "ssh-keyscan", "unshare", "nsenter", "setpriv"]
    return missing_tools(*tools) or missing_rights()


@dataclass
class Host:
    name: str
    address: str
    folder: Path
    cards: dict[str, str] = field(default_factory=dict)  # card -> the port of the switch at the other end
    machine: Machine | None = None  # None while it has no power

    @property
    def running(self) -> Machine:
        if self.machine is None:
            raise RuntimeError(f"{self.name} must have power; it was killed, start() brings it back")
        return self.machine

    @property
    def namespace(self) -> Path:
        """The door to its network namespace, for `nsenter --net=`."""
        return Path(f"/proc/{self.running.pid}/ns/net")


class VirtualCluster:
    """Up to 200 hosts; build it with `with`, or call `close` when done."""

    def __init__(
        self,
        hosts: int = 4,
        *,
        rate: str | None = None,
        racks: Sequence[int] = (),  # hosts in each; none: all on one switch
        uplink: str | None = None,  # what a rack's cable to the others carries, each way
        subnet: str = "10.77.0.0/24",
    ) -> None:
        if not 1 <= hosts <= 200:
            raise ValueError(f"a cluster must have 1 to 200 hosts, got {hosts}")
        if racks and sum(racks) != hosts:
            raise ValueError(f"the racks must hold all hosts, got {' + '.join(map(str, racks))} for {hosts}")
        network = ipaddress.ip_network(subnet)
        self.folder = scratch.new_folder()
        self.ssh_config = self.folder / "ssh_config"
        self.home = self.folder / "home"  # nobody's own shell settings or keys take part
        self.infrastructure = {"sshd"}  # programs that belong to a host, for `processes`
        self.servers: set[int] = set()  # processes that belong to a host likewise, by their numbers
        self.python: str | None = None  # the interpreter for agents and workers, where it is not this one
        self.on_start: list[Callable[[Host], None]] = []  # called for a host that has got its power back
        self._owner = os.getpid()
        self._rate, self._uplink = rate, uplink
        self._prefix = network.prefixlen
        self._known_hosts = self.folder / "known_hosts"
        self._networks = {"br0"}
        self._everyone = {
            name: Host(name, str(network[number]), self.folder / name)
            for name, number in [(HEAD, 250), *((f"h{i}", i) for i in range(1, hosts + 1))]
        }
        numbered = [rack for rack, count in enumerate(racks, 1) for _ in range(count)]
        self._racks = {f"h{number}": f"rack{rack}" for number, rack in enumerate(numbered, 1)}
        self._switch: Machine | None = None
        atexit.register(self.close)
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self) -> list[Host]:
        """Everyone but the head."""
        return [host for host in self._everyone.values() if host.name != HEAD]

    @property
    def head(self) -> Host:
        return self._everyone[HEAD]

    @property
    def environment(self) -> dict[str, str]:
        """What a launcher needs to find its way; set for every command."""
        config = {"WEFT_SSH_CONFIG": str(self.ssh_config), "HOME": str(self.home)}
        return config | ssh.LOGIN_ENVIRONMENT

    def host(self, name: str) -> Host:
        if name not in self._everyone:
            raise ValueError(f"no host {name!r} in this cluster; it has {', '.join(self._everyone)}")
        return self._everyone[name]

    # Commands

    def popen(
        self,
        argv: Sequence[str | Path],
        on: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any = subprocess.PIPE,
        stderr: Any = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start a command on a host (the head unless told), in this folder and environment unless told."""
        return self.host(on or HEAD).running.popen(
            [str(word) for word in argv],
            env={**os.environ, **self.environment, **(env or {})},
            cwd=cwd or Path.cwd(),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    def run(
        self,
        argv: Sequence[str | Path],
        on: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        input: str | None = None,
        timeout: float = 30.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host (the head unless told) to its end."""
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        with self.popen(argv, on, env=env, cwd=cwd, stdin=stdin) as process:
            try:
                stdout, stderr = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
        if check and done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, list(argv), stdout, stderr)
            error.add_note(f"{stdout}\n{stderr}")
            raise error
        return done

    def processes(self, host: str) -> list[tuple[int, list[str]]]:
        """Who lives on a host besides its own daemons: numbers as seen from outside, and command lines."""
        found = []
        for process in self.host(host).running.processes():
            try:
                # Some systems say sshd-session or slurmd-wlm.
                belongs = Path(process.exe()).name.split("-")[0] in self.infrastructure
                line = process.cmdline()
                if not belongs and process.pid not in self.servers and not stands_for_fork(line):
                    found.append((process.pid, line))
            except psutil.NoSuchProcess:
                continue
        return found

    # Mishaps

    def cut(self, host: str, card: str = "eth0") -> None:
        """Cut the cable: the host loses its carrier, and what others send to it goes nowhere, unsaid."""
        self._at_switch("ip", [f"link set {self.host(host).cards[card]} down"])

    def heal(self, host: str, card: str = "eth0") -> None:
        self._at_switch("ip", [f"link set {self.host(host).cards[card]} up"])

    def slow(self, host: str, rate: str | None, card: str = "eth0") -> None:
        """Shape the link of a host, both ways, to a rate such as `100mbit`; None lets it run free."""
        wires.carry_out("tc", wires.shape(card, rate), self.host(host).running.pid)
        self._at_switch("tc", wires.shape(self.host(host).cards[card], rate))

    def kill(self, host: str) -> None:
        """Power loss: all its processes end at once, and not even a farewell packet leaves the host."""
        victim = self.host(host)
        # First, and by us: the network lives on as long as the kernel tries to send what the last sockets still held,
        # and takes its cables along when it goes, at a moment of its own choice.
        self._at_switch("ip", [f"link del {port}" for port in victim.cards.values()])
        victim.cards.clear()
        victim.running.kill()
        victim.machine = None

    def start(self, host: str) -> None:
        """Power a killed host on again: same name, address and key, none of its processes or extra cards."""
        if self.host(host).machine is not None:
            raise RuntimeError(f"{host} must be without power to be started")
        self._boot([self.host(host)])
        for started in self.on_start:
            started(self.host(host))

    def forget_host_key(self, host: str) -> None:
        """Nobody knows the key of this host any more, as before a first visit."""
        known = self._known_hosts.read_text().splitlines(keepends=True)
        self._known_hosts.write_text("".join(line for line in known if not line.startswith(f"{host},")))

    def swap_host_key(self, host: str) -> None:
        """Give a host another key than the one everybody knows, as after a fresh install."""
        key = ssh.new_key(self.host(host).folder / "host_key")
        self.run(["kill", "-HUP", "1"], on=host)  # sshd is process 1
        scan = ["ssh-keyscan", "-T", "1", "-t", "ed25519", self.host(host).address]
        wait_until(lambda: key in self.run(scan, check=False).stdout, f"the new key of {host}")

    def add_card(self, host: str, name: str, address: str, *, network: str | None = None) -> None:
        """Give a host one more network card with an address such as `192.168.9.1/24`.

        Cards of the same `network` reach each other on a switch apart; without one, a card is up but alone.
        """
        owner, lines = self.host(host), []
        bridge = f"br-{network}" if network else None
        if bridge and bridge not in self._networks:
            lines += wires.new_switch(bridge)
            self._networks.add(bridge)
        port = f"{host}-{name}"
        lines += wires.cable(port, owner.running.pid, name, address, bridge)
        self._at_switch("ip", lines)
        wires.carry_out("ip", [f"addr add {address} dev {name}", f"link set {name} up"], owner.running.pid)
        owner.cards[name] = port

    def behind_nat(self, host: str, inside: str = "192.168.50.2") -> None:
        """Put a host behind a translator: it knows itself by an inside address, the others see the outside one.

        Its old address stays reachable, as by a forwarded port, so ssh still gets in.
        """
        owner = self.host(host)
        network = ipaddress.ip_network(f"{owner.address}/{self._prefix}", strict=False)
        lines = [f"addr add {inside}/32 dev eth0", f"route replace {network} dev eth0 src {inside}"]
        wires.carry_out("ip", lines, owner.running.pid)
        rules = [
            "add table ip nat",
            "add chain ip nat out { type nat hook postrouting priority 100 ; }",
            f"add rule ip nat out ip saddr {inside} snat to {owner.address}",
        ]
        self.run(["nft", "; ".join(rules)], on=host)

    # Life

    def close(self) -> None:
        """Take everything down by force; may be called again."""
        if os.getpid() != self._owner:
            return  # a fork of the builder is ending, not the builder
        atexit.unregister(self.close)
        machines = [host.machine for host in self._everyone.values()] + [self._switch]
        for machine in machines:
            if machine is not None:
                machine.kill()
        for host in self._everyone.values():
            host.machine = None
        self._switch = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _build(self) -> None:
        # The slow step, a process per machine, goes on while keys and files are written.
        self._switch = Machine("echo made; read -r _; exec sleep infinity", self.folder / "switch.log")
        self._write_files()
        self._switch.wait_made()
        self._switch.plugged()
        self._at_switch("ip", wires.new_switch("br0"))
        for rack in dict.fromkeys(self._racks.values()):
            self._at_switch("ip", [*wires.new_switch(rack), *wires.uplink(f"{rack}-up", rack, "br0")])
            if self._uplink:
                for end in (f"{rack}-up", f"{rack}-up-core"):
                    self._at_switch("tc", wires.shape(end, self._uplink))
        self._boot(list(self._everyone.values()))

    def _write_files(self) -> None:
        everyone = self._everyone.values()
        user_key = self.folder / "user_key"
        authorized_keys = self.folder / "authorized_keys"
        authorized_keys.write_text(ssh.new_key(user_key) + "\n")
        known = []
        for host in everyone:
            host.folder.mkdir()
            host_key = host.folder / "host_key"
            known.append(f"{host.name},{host.address} {ssh.new_key(host_key)}\n")
            (host.folder / "sshd_config").write_text(ssh.server_config(host_key, authorized_keys))
        self._known_hosts.write_text("".join(known))
        addresses = [(host.name, host.address) for host in everyone]
        self.ssh_config.write_text(ssh.client_config(user_key, self._known_hosts, addresses))
        names = "".join(f"{address} {name}\n" for name, address in addresses)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        self.home.mkdir()
        root = f"root:x:0:0:root:{self.home}:/bin/sh"
        users = re.sub("^root:.*", root, Path("/etc/passwd").read_text(), flags=re.MULTILINE)
        (self.folder / "passwd").write_text(users)
        # sshd turns away accounts that are locked, as root is on many systems.
        (self.folder / "shadow").write_text("root:*:19000:0:99999:7:::\n")

    def _boot(self, hosts: list[Host]) -> None:
        lines, machines = [], []
        for host in hosts:
            host.machine = Machine(self._script(host), host.folder / "boot.log")
            machines.append(host.machine)
        for host, machine in zip(hosts, machines, strict=True):
            machine.wait_made()
            host.cards["eth0"] = f"{host.name}-eth0"
            switch = self._racks.get(host.name, "br0")
            lines += wires.cable(host.cards["eth0"], machine.pid, "eth0", host.address, switch)
        self._at_switch("ip", lines)
        for machine in machines:
            machine.plugged()
        for host in hosts:
            wait_until(partial(self._answers, host), f"sshd on {host.name}")
            if self._rate:
                self.slow(host.name, self._rate)

    def _script(self, host: Host) -> str:
        folder, own = (shlex.quote(str(path)) for path in (self.folder, host.folder))
        return f"""
            hostname {host.name}
            mount --bind {folder}/hosts /etc/hosts
            mount --bind {folder}/passwd /etc/passwd
            mount --bind {folder}/shadow /etc/shadow
            mount -t tmpfs tmpfs /dev/shm
            mount -t tmpfs tmpfs /run
            mkdir -p /run/sshd /run/cgroup {ssh.LOGIN_ENVIRONMENT["XDG_RUNTIME_DIR"]}
            # /sys shows the network cards of whoever mounted it, and hides what was mounted in the old one.
            mount --rbind /sys/fs/cgroup /run/cgroup
            mount -t sysfs sysfs /sys
            mount --move /run/cgroup /sys/fs/cgroup
            ip link set lo up
            echo made
            read -r _
            ip addr add {host.address}/{self._prefix} dev eth0
            ip link set eth0 up
            exec "$(command -v sshd)" -D -f {own}/sshd_config -E {own}/sshd.log </dev/null >/dev/null 2>&1
        """

    def _answers(self, host: Host) -> bool:
        if not host.running.alive:
            raise RuntimeError(f"{host.name} died while starting:\n{(host.folder / 'boot.log').read_text()}")
        with entered(self.head.running.pid, "net"):
            knock = socket.socket()
        with knock:
            knock.settimeout(0.2)  # sooner than a lost packet is sent again
            return knock.connect_ex((host.address, 22)) == 0

    def _at_switch(self, tool: str, lines: list[str]) -> None:
        assert self._switch is not None, "the cluster is closed"
        wires.carry_out(tool, lines, self._switch.pid)
