"""Fork servers on the hosts of a virtual cluster: agents and workers there are forks that have torch loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from testing.cluster.cluster import VirtualCluster
from testing.cluster.waiting import wait_until
from testing.forking.programs import FOLDER_PREFIX
from testing.forking.server import ENVIRONMENT, ROOT, ask_to_load, write_commands


class HostForks:
    """An interpreter for `weft run --python` that is a fork of the server of its host; servers end with the cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._folder = TemporaryDirectory(prefix=FOLDER_PREFIX)
        commands, _ = write_commands(Path(self._folder.name))
        self.python = str(commands / "python")
        self._started: set[str] = set()

    def on(self, hosts: Iterable[str]) -> str:
        """Return the interpreter, with a server on each of these hosts."""
        missing = sorted(set(hosts) - self._started)
        sockets = [Path(self._folder.name, f"socket-{host}") for host in missing]
        for host, path in zip(missing, sockets, strict=True):
            with Path(self._folder.name, f"{host}.log").open("w") as log:
                server = self._cluster.popen(
                    [sys.executable, "-m", "testing.forking.server", path],
                    on=host,
                    env=ENVIRONMENT,
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                )
            self._cluster.servers.add(server.pid)
        for path in sockets:
            wait_until(path.exists, f"the fork server at {path}", timeout_s=120)
            ask_to_load(str(path), ())
        self._started.update(missing)
        return self.python

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._folder.cleanup()
