"""The mpi engine: workers that are ranks of an MPI world too, started by the mpirun that is there.

The hosts are asked about themselves as for the ssh engine, and their agents keep watch over them during the run.
mpirun binds the ranks as planned, and its whole command line is shown, as `ddlrun` showed it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from weft.errors import UsageError
from weft.launch.agent.here import is_this_machine
from weft.launch.config import LaunchConfig
from weft.launch.control.agents import AgentPool
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.local import LocalEngine, explain_agent
from weft.launch.engines.mpirun import (
    Mpirun,
    Surroundings,
    mpirun_line,
    mpirun_variables,
    needs_rankfile,
    parse_version,
)
from weft.launch.engines.ssh import SshHosts, ssh_argv
from weft.launch.engines.starter import Starter, run_starter
from weft.launch.plan import LaunchPlan
from weft.launch.sites import HostSite
from weft.topology.detect import detect
from weft.topology.network import card_towards, source_address
from weft.topology.rankfile import render

RANKFILE = "RANKFILE"


def find_mpirun() -> Mpirun:
    """The mpirun beside our interpreter, or the first on PATH."""
    beside = Path(sys.executable).parent
    path = shutil.which("mpirun", path=str(beside)) or shutil.which("mpirun")
    if path is None:
        raise UsageError(
            f"--engine mpi needs an mpirun, got none in {beside} or on PATH; pip install 'weft[mpi]'"
        )
    done = subprocess.run(
        [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False
    )
    return parse_version(path, done.stdout + done.stderr)


class MpiEngine:
    """Workers started by mpirun, here or on hosts reached by ssh."""

    name = "mpi"

    def __init__(self, config: LaunchConfig) -> None:
        for name in config.host_names:
            if "@" in name or ":" in name:
                raise UsageError(
                    f"--engine mpi must be given plain host names, got {name}; name the user, or the address, "
                    "in ~/.ssh/config"
                )
        self._config = config
        remote = len(config.host_names) > 1 or not all(map(is_this_machine, config.host_names))
        self.hosts = SshHosts(config) if remote else None
        self._where: SshHosts | LocalEngine = self.hosts or LocalEngine(config)
        self.python = config.python or sys.executable
        self._crew: AgentPool | None = None

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()
        if self.hosts is not None:
            self.hosts.close()

    @cached_property
    def mpirun(self) -> Mpirun:
        return find_mpirun()

    def sites(self) -> tuple[HostSite, ...]:
        assert self.mpirun  # before any host is troubled
        return self._where.sites()

    def port(self) -> int:
        return self._where.port()

    def commands(self, plan: LaunchPlan) -> tuple[tuple[str, ...], ...]:
        around = self._surroundings(plan, RANKFILE if needs_rankfile(plan) else None)
        return (mpirun_line(self.mpirun, plan, around),)

    def run(self, plan: LaunchPlan, console: Console, *, run_id: str, run_dir: Path | None) -> Outcome:
        with _rankfile(plan, run_dir) as rankfile:
            around = self._surroundings(plan, rankfile)
            starter = Starter(
                name="mpirun",
                argv=mpirun_line(self.mpirun, plan, around),
                env=mpirun_variables(self.mpirun, around),
                tags=self.mpirun.tags,
                polite=self.mpirun.polite,
                binds=self.mpirun.binds and rankfile is not None,
            )
            return run_starter(
                starter,
                plan,
                self._config,
                self._watch(),
                console,
                run_id=run_id,
                run_dir=run_dir,
                sweep_host=lambda host: self._sweep(host, run_id),
            )

    def _watch(self) -> AgentPool:
        """The agents that watch the hosts, where there are others than this one."""
        if self.hosts is not None:
            return self.hosts.crew
        self._crew = AgentPool([], explain=explain_agent)
        return self._crew

    def _sweep(self, host: str, run_id: str) -> None:
        if self.hosts is not None:
            self.hosts.sweep(host, run_id)

    def _surroundings(self, plan: LaunchPlan, rankfile: str | None) -> Surroundings:
        ssh = head = None
        if self.hosts is not None:
            ssh = ssh_argv("", "", config_file=os.environ.get("WEFT_SSH_CONFIG"))[:-2]
            head = self._head(plan)
        return Surroundings(
            rankfile=rankfile,
            ssh=ssh,
            head=head,
            root=os.geteuid() == 0,
            tcp=self._config.tcp,
            args=self._config.mpi_args,
        )

    def _head(self, plan: LaunchPlan) -> tuple[str, str] | None:
        """Our address and card on the way to the hosts: mpirun's daemons call us back there."""
        address = source_address(plan.leader)
        card = card_towards(detect(), plan.leader)
        return (address, card.name) if address and card and not card.loopback else None


@contextmanager
def _rankfile(plan: LaunchPlan, run_dir: Path | None) -> Iterator[str | None]:
    """The plan's rank file, in the run directory or a folder that goes with the run; None: nothing to bind."""
    if not needs_rankfile(plan):
        yield None
        return
    assert plan.rankfile is not None
    with nullcontext(run_dir) if run_dir else TemporaryDirectory(prefix="weft-") as folder:
        path = Path(folder).absolute() / RANKFILE
        path.write_text(render(plan.rankfile))
        yield str(path)
