"""`HostsEngine` carries out a plan by agents on hosts: what the ssh engine and the engine of pods have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import ClassVar

from weft.launch.config import LaunchConfig
from weft.launch.control.conductor import Conductor, tasks_of
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.hosts import Hosts
from weft.launch.plan import LaunchPlan
from weft.launch.sites import HostSite


class HostsEngine:
    """An engine whose workers are started by agents on the hosts of a run, however these are reached."""

    name: ClassVar[str]

    def __init__(self, config: LaunchConfig, hosts: Hosts) -> None:
        self._config = config
        self.hosts = hosts
        self.python = hosts.python

    def close(self) -> None:
        self.hosts.close()

    def sites(self) -> tuple[HostSite, ...]:
        return self.hosts.sites()

    def port(self) -> int:
        return self.hosts.port()

    def commands(self, plan: LaunchPlan) -> tuple[tuple[str, ...], ...]:
        return (*(command.argv for command in self.hosts.agent_commands()), plan.argv)

    def replan(self) -> Callable[[Collection[str]], LaunchPlan | None] | None:
        """Return what makes a plan without the hosts that were lost; None: the run ends with its first host."""
        return None

    def run(self, plan: LaunchPlan, console: Console, *, run_id: str, run_dir: Path | None) -> Outcome:
        conductor = Conductor(
            plan,
            self.hosts.crew,
            tasks_of(plan),
            console,
            run_id=run_id,
            run_dir=run_dir,
            grace_s=self._config.grace_s,
            lost_after_s=self._config.lost_after_s,
            sweep=lambda host: self.hosts.sweep(host, run_id),
            replan=self.replan(),
        )
        return conductor.run()
