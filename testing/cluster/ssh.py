"""Throw-away keys and the configuration files of sshd and ssh."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

# As after a login. It is each host's own, so that sockets kept there do not meet those of another host or cluster.
LOGIN_ENVIRONMENT = {"XDG_RUNTIME_DIR": "/run/user/0"}


def new_key(path: Path) -> str:
    """Write a key pair, replacing an old one; returns the public half."""
    path.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.stem, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=60)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def server_config(host_key: Path, authorized_keys: Path) -> str:
    environment = " ".join(f"{name}={value}" for name, value in LOGIN_ENVIRONMENT.items())
    return f"""\
Port 22
ListenAddress 0.0.0.0
HostKey {host_key}
AuthorizedKeysFile {authorized_keys}
# The files lie under a temporary folder, whose parents anyone may write to.
StrictModes no
PidFile none
UsePAM no
SetEnv {environment}
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
PrintLastLog no
# A launcher may knock many times at once; the limits for strangers would turn some away at random.
MaxStartups 200
MaxSessions 200
LogLevel VERBOSE
"""


def client_config(user_key: Path, known_hosts: Path, addresses: Iterable[tuple[str, str]]) -> str:
    everyone = f"""\
Host *
    User root
    IdentityFile {user_key}
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""
    return everyone + "".join(f"Host {name}\n    HostName {address}\n" for name, address in addresses)
