"""The local engine: workers on this machine, below one agent.

torch.distributed.elastic's launcher is not used: it takes over a second to import, cannot place ranks, and
leaves its workers behind when it is killed. Its variables and its restart semantics are kept.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from weft.errors import UsageError
from weft.launch.agent.here import LOOPBACK, is_this_machine
from weft.launch.agent.processes import sweep
from weft.launch.agent.sweep import marker
from weft.launch.config import LaunchConfig
from weft.launch.control.agents import AgentCommand, AgentPool
from weft.launch.control.conductor import Conductor, tasks_of
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.plan import LaunchPlan
from weft.launch.sites import HostSite
from weft.ports import free_port, is_free
from weft.topology.detect import detect
from weft.topology.host import Host


def agent_argv(python: str = sys.executable) -> tuple[str, ...]:
    # -P: the user's folder may hold a file named like a module we import.
    return (python, "-P", "-m", "weft.launch.agent.agent")


def explain_agent(host: str, code: int | None, complaint: str) -> str:
    return f"{host}: the agent ended (exit code {code})" + (f": {complaint}" if complaint else "")


def lone_site(name: str, host: Host, interface: str | None) -> HostSite:
    """Return the site of a host whose workers meet no others: on loopback, or on the card that the user named."""
    if interface is None:
        return HostSite(name=name, host=host, address=LOOPBACK, interface="lo")
    for card in host.cards:
        if card.name == interface and card.up and card.addresses:
            return HostSite(name=name, host=host, address=card.addresses[0], interface=card.name)
    known = ", ".join(card.name for card in host.cards if card.up and card.addresses)
    raise UsageError(f"--interface must be a card of {name} that is up, got {interface!r}; it has {known}")


class LocalEngine:
    """Workers on this machine."""

    name = "local"
    hosts = None

    def __init__(self, config: LaunchConfig) -> None:
        elsewhere = [name for name in config.host_names if not is_this_machine(name)]
        if elsewhere or len(config.host_names) > 1:
            raise UsageError(
                f"--engine local runs on this machine alone, got {', '.join(config.host_names)}; use --engine ssh"
            )
        if config.python is not None and shutil.which(config.python) is None:
            raise UsageError(
                f"--python must be an interpreter of this machine, got {config.python}; "
                f"leave it out for {sys.executable}"
            )
        self._config = config
        self.python = config.python or sys.executable
        self._crew: AgentPool | None = None

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()

    def sites(self) -> tuple[HostSite, ...]:
        host = detect()
        name = self._config.host_names[0] if self._config.host_names else host.name
        return (lone_site(name, host, self._config.interface),)

    def port(self) -> int:
        port = self._config.port
        if port is not None and not is_free(port):
            raise UsageError(
                f"--port must be free, got {port} which is in use; leave it out to have one picked"
            )
        return port or free_port()

    def commands(self, plan: LaunchPlan) -> tuple[tuple[str, ...], ...]:
        return (agent_argv(), plan.argv)

    def run(self, plan: LaunchPlan, console: Console, *, run_id: str, run_dir: Path | None) -> Outcome:
        self._crew = AgentPool([AgentCommand(plan.hosts[0].name, agent_argv())], explain=explain_agent)
        conductor = Conductor(
            plan,
            self._crew,
            tasks_of(plan),
            console,
            run_id=run_id,
            run_dir=run_dir,
            grace_s=self._config.grace_s,
            lost_after_s=self._config.lost_after_s,
            sweep=lambda _: sweep(marker(run_id)),
        )
        return conductor.run()
