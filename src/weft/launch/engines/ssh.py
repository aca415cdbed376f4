"""The ssh engine: an agent on each host, started over OpenSSH, and nothing that listens there but sshd.

One connection per host carries everything and stays open a minute for the next run. The agents describe their
hosts, find the address and the cards to use, and later start the workers.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from weft.errors import UsageError
from weft.launch.config import LaunchConfig, carried_variables
from weft.launch.engines.hosts import Hosts
from weft.launch.engines.hosts_engine import HostsEngine
from weft.launch.plan import LaunchPlan, make_plan

CONNECT_TIMEOUT_S = 5
LEAST_SILENCES = 3  # seconds, at one question a second, for which a host may not answer ssh


def ssh_argv(
    host: str, command: str, *, config_file: str | None = None, lost_after_s: float = 0.0
) -> tuple[str, ...]:
    """The ssh client for one host: never asks, notices a dead peer, shares its connection.

    The client must not give a silent host up before the launcher does, after `lost_after_s`.
    """
    silences = max(LEAST_SILENCES, math.ceil(lost_after_s) + 1)
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        "ServerAliveInterval": "1",
        "ServerAliveCountMax": str(silences),
        "ControlMaster": "auto",
        # The same name may mean another host under another configuration; a shared connection keeps its own patience.
        "ControlPath": f"{_socket_folder()}/{zlib.crc32(f'{config_file} {silences}'.encode()):08x}-%C",
        "ControlPersist": "60",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    return ("ssh", *(("-F", config_file) if config_file else ()), "-T", *flags, host, command)


def _socket_folder() -> Path:
    """Return where shared connections live: private, and short, for a socket's path is at most 107 characters."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    # After `su` it may still name the folder of somebody else.
    usable = 0 < len(runtime) <= 30 and os.access(runtime, os.W_OK)
    return Path(runtime, "weft-ssh") if usable else Path(f"/tmp/weft-ssh-{os.getuid()}")


def _make_private(folder: Path) -> None:
    """Make a folder that this user alone can write to: others could answer in a host's place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UsageError(f"{folder} must be private to us (mode 700), got one that is not; remove it")


def prepare_ssh() -> None:
    """Make the folder of the shared connections, which must be private."""
    _make_private(_socket_folder())


def remote_command(argv: Sequence[str]) -> str:
    """Return what sshd's shell is given. `exec` so that no shell stays between sshd and the agent."""
    path = os.environ.get("PYTHONPATH")
    return shlex.join(("exec", *(("env", f"PYTHONPATH={path}") if path else ()), *argv))


def explain_ssh(host: str, code: int | None, complaint: str, python: str = sys.executable) -> str:
    """Return why an agent could not be reached, and how to mend it: a sentence for each cause we know."""
    for pattern, sentence in _CAUSES:
        if re.search(pattern, complaint, re.IGNORECASE):
            return sentence.format(host=host, bare=host.rpartition("@")[2], python=python)
    if not complaint:  # a shared connection that breaks says nothing, nor does an agent that is killed
        return (
            f"{host}: the agent must stay, got its end (exit code {code}) without a word; is the host up, is its "
            "cable in, was it out of memory? (dmesg tells)"
        )
    last = complaint.splitlines()[-1]
    return f"{host}: the agent ended (exit code {code}): {last}; try: ssh {host} true"


_CAUSES = (
    (
        r"could not resolve hostname",
        "{host}: a host must be known, got a name that does not resolve; "
        "check the spelling, /etc/hosts or ~/.ssh/config",
    ),
    (
        r"host identification has changed",
        "{host}: its host key must be the one we know, got another (a stale key, or another machine); "
        "if the host was reinstalled: ssh-keygen -R {bare}",
    ),
    (
        r"host key verification failed|no .* host key is known",
        "{host}: its host key must be known, got one never seen; check it and accept it once: ssh {host} true",
    ),
    (
        r"permission denied",
        "{host}: ssh must let us in with a key, got permission denied; install yours: ssh-copy-id {host}",
    ),
    (
        r"connection refused",
        "{host}: sshd must be listening, got connection refused; start it there or check the port",
    ),
    (
        # The last: a shared connection whose other end has gone.
        r"timed out|no route to host|network is unreachable|timeout, server .* not responding|mux_client_",
        "{host}: the host must answer, got silence; is it up, is its cable in, is a firewall between?",
    ),
    (
        r"no module named .?weft",
        "{host}: weft must be installed at the same place on every host, got a Python without it ({python}); "
        "install it there: {python} -m pip install weft",
    ),
    (
        r"not found|no such file or directory",
        "{host}: Python must be at the same path on every host, got no {python} there; "
        "make the same virtual environment there or name one with --python",
    ),
)


class SshHosts(Hosts):
    """Hosts reached by ssh."""

    def start_on(self, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        return ssh_argv(
            name,
            remote_command(argv),
            config_file=os.environ.get("WEFT_SSH_CONFIG"),
            lost_after_s=self._config.lost_after_s,
        )

    def explain(self, name: str, code: int | None, complaint: str) -> str:
        return explain_ssh(name, code, complaint, self.python)

    def prepare(self) -> None:
        """Make the folder of the shared connections, which must be private."""
        prepare_ssh()


class SshEngine(HostsEngine):
    """Workers on hosts reached by ssh; this machine, if it is among them, without."""

    name = "ssh"

    def __init__(self, config: LaunchConfig) -> None:
        if not config.host_names:
            raise UsageError("--engine ssh must be given hosts, got none; use -H host1,host2 or --hostfile")
        super().__init__(config, SshHosts(config))

    def replan(self) -> Callable[[Collection[str]], LaunchPlan | None] | None:
        return self._replan if self._config.min_hosts is not None else None

    def _replan(self, lost: Collection[str]) -> LaunchPlan | None:
        """The same run on the hosts that are left; None if they are too few."""
        left = [name for name in self.hosts.names if name not in lost]
        if len(left) < max(1, self._config.min_hosts or 1):
            return None
        self.hosts.keep(left)
        share = self._config.workers and -(-self._config.workers // len(self._config.hosts))
        config = replace(
            self._config,
            hosts=tuple(entry for entry in self._config.hosts if entry.name in left),
            workers=None,
            per_host=share or self._config.per_host,
        )
        return make_plan(
            config,
            self.sites(),
            engine=self.name,
            port=self.port(),
            python=self.python,
            carried=carried_variables(),
        )
