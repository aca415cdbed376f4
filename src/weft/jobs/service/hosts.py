"""Hosts of the service: this machine, and others that ssh reaches; each is looked at again and again."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

from weft.errors import WeftError
from weft.jobs.service.config import ServiceConfig
from weft.jobs.store.database import Database
from weft.jobs.store.hosts import change_host, list_hosts, put_host
from weft.launch.agent.here import is_this_machine
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.topology.detect import detect
from weft.topology.host import Host
from weft.topology.hostlist import parse_hosts


def survey_host(name: str) -> Host:
    """Ask a host what it has, as `weft check` does; ConnectError tells why it does not answer."""
    entries = parse_hosts(name)
    if is_this_machine(entries[0].name):
        return detect()
    from weft.launch.engines.ssh import SshHosts

    config = LaunchConfig(command=Command("command", "true"), hosts=entries[:1])
    with closing(SshHosts(config)) as hosts:
        return hosts.survey()[entries[0].name].host


class HostWatch:
    """Looks at hosts from time to time, in the background."""

    def __init__(self, config: ServiceConfig, database: Database, here: str) -> None:
        self._config, self._database, self._here = config, database, here
        self._task: asyncio.Task[None] | None = None
        self._next_s = 0.0

    async def add_this_host(self) -> None:
        """Add this machine, or note what it has now."""
        if self._config.this_host:
            found = await asyncio.to_thread(detect)
            await self._database.write(lambda c: put_host(c, self._here, found))

    def look(self, _: object, now_s: float) -> None:
        """Begin another look if it is time for one."""
        if now_s >= self._next_s and (self._task is None or self._task.done()):
            self._next_s = now_s + self._config.look_at_hosts_s
            self._task = asyncio.create_task(self._look(), name="host-watch")

    def hurry(self) -> None:
        """Look soon: a job has lost a host."""
        self._next_s = 0.0

    async def _look(self) -> None:
        hosts = await self._database.read(list_hosts)
        await asyncio.gather(
            *(self._look_at(host.name, host.state) for host in hosts if host.name != self._here)
        )

    async def _look_at(self, name: str, state: str) -> None:
        try:
            found = await asyncio.to_thread(survey_host, name)
        except (WeftError, OSError) as error:
            if state == "up":
                reason = str(error)
                changes: dict[str, Any] = {"state": "lost", "message": reason}
                await self._database.write(lambda c: change_host(c, name, **changes))
            return
        await self._database.write(lambda c: put_host(c, name, found))

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
