"""The seam between a plan and what starts it. A new engine is one file and one line in `ENGINES`."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Protocol

from weft.errors import UsageError
from weft.launch.agent.here import is_this_machine
from weft.launch.config import LaunchConfig
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.hosts import Hosts
from weft.launch.engines.pods.place import is_among_pods
from weft.launch.plan import LaunchPlan
from weft.launch.sites import HostSite

ENGINES = {
    "local": "weft.launch.engines.local:LocalEngine",
    "ssh": "weft.launch.engines.ssh:SshEngine",
    "mpi": "weft.launch.engines.mpi:MpiEngine",
    "slurm": "weft.launch.engines.slurm:SlurmEngine",
    "kubernetes": "weft.launch.engines.kubernetes.engine:KubernetesEngine",
    "pods": "weft.launch.engines.pods.engine:PodsEngine",
}


class Engine(Protocol):
    """Starts workers on hosts. Made from a config, used once.

    `sites` is called first, once; then `port`; `commands` with the plan made of them; then `run`; `close` at the end,
    whatever happened before.
    """

    name: str
    python: str  # the interpreter on the hosts

    @property
    def hosts(self) -> Hosts | None:
        """The hosts that can be asked before a run, where there are others than this machine."""
        ...

    def sites(self) -> tuple[HostSite, ...]:
        """Find out what the hosts are, and how each reaches the leader."""
        ...

    def port(self) -> int:
        """A port on the leader for the workers to meet at."""
        ...

    def commands(self, plan: LaunchPlan) -> tuple[tuple[str, ...], ...]:
        """The very commands `run` would start, for `--dry-run`."""
        ...

    def run(self, plan: LaunchPlan, console: Console, *, run_id: str, run_dir: Path | None) -> Outcome:
        """Carry out the plan."""
        ...

    def close(self) -> None:
        """End whatever is left."""
        ...


def choose_engine(config: LaunchConfig, environ: dict[str, str] | None = None) -> str:
    """`auto`: the hosts that were named, else the pods or the Slurm allocation we are in, else this machine."""
    variables = dict(os.environ) if environ is None else environ
    if config.engine != "auto":
        return config.engine
    if config.host_names:
        return "ssh" if any(not is_this_machine(name) for name in config.host_names) else "local"
    if is_among_pods(variables):
        return "pods"
    return "slurm" if "SLURM_JOB_ID" in variables and "SLURM_JOB_NODELIST" in variables else "local"


def open_engine(config: LaunchConfig) -> Engine:
    """The engine for this config, not yet doing anything."""
    name = choose_engine(config)
    if name not in ENGINES:
        raise UsageError(f"--engine must be one of auto, {', '.join(ENGINES)}, got {name!r}")
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), attribute)(config)
    return engine


def remote_hosts(config: LaunchConfig) -> Hosts:
    """The hosts of an elastic run that agents are started on: pods, or whatever ssh reaches."""
    if choose_engine(config) == "pods":
        from weft.launch.engines.pods.engine import PodHosts

        return PodHosts(config)
    from weft.launch.engines.ssh import SshHosts

    return SshHosts(config)
