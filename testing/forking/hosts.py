"""Fork servers on the hosts of a virtual cluster: agents and workers there are forks that have torch loaded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import psutil
from testing.cluster.cluster import Host, VirtualCluster
from testing.cluster.waiting import wait_until
from testing.forking.programs import FOLDER_PREFIX
from testing.forking.server import ForkServer, write_commands


class HostForks:
    """An interpreter for `weft run --python` that is a fork of the server of its host; servers end with their hosts.

    The servers are themselves forks, of that of this process of tests.
    """

    def __init__(self, cluster: VirtualCluster, forks: ForkServer) -> None:
        self._cluster, self._forks = cluster, forks
        self._folder = TemporaryDirectory(prefix=FOLDER_PREFIX)
        self._servers: list[psutil.Process] = []
        commands, _ = write_commands(Path(self._folder.name))
        for host in cluster.hosts:
            self._serve_on(host)
        cluster.on_start.append(self._serve_on)
        cluster.python = str(commands / "python")

    def _serve_on(self, host: Host) -> None:
        folder = Path(self._folder.name)
        socket = folder / f"socket-{host.name}"
        log = folder / f"{host.name}.log"
        socket.unlink(missing_ok=True)  # of a server that ended with its host
        server = self._forks.on_host(host.running.pid, socket, log)
        self._servers.append(psutil.Process(server))
        self._cluster.servers.add(server)
        wait_until(socket.exists, f"the fork server on {host.name}", timeout_s=60)

    def _have_ended(self) -> bool:
        return not any(server.is_running() for server in self._servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._cluster.on_start.remove(self._serve_on)
        # Their parent hears of their end while it lives; a host whose processes nobody waits for takes a minute to end.
        for server in self._servers:
            with suppress(psutil.NoSuchProcess):
                server.kill()
        wait_until(self._have_ended, "the end of the fork servers on hosts", timeout_s=60)
        self._cluster.python = None
        self._folder.cleanup()
