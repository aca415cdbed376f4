"""The slurm engine: workers that are the tasks of a job step, on the hosts of the allocation we are in.

The hosts are asked about themselves as for the ssh engine, by agents that srun starts there. Then one srun starts
all workers. Nothing has to be known but what Slurm puts into the environment of a job.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from weft.context import tasks_per_node
from weft.errors import UsageError
from weft.launch.config import LaunchConfig
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.batch import batch_script
from weft.launch.engines.hosts import Hosts
from weft.launch.engines.starter import Starter, adopt_argv, run_starter
from weft.launch.engines.tags import SLURM
from weft.launch.plan import LaunchPlan
from weft.launch.sites import HostSite
from weft.topology.hostlist import HostEntry, expand_hosts
from weft.topology.rankfile import deal

# Steps share the allocation with whatever already runs in it, such as the shell we are in; they do not bind
# workers, which `adopt` does as planned; and they hand on our environment whatever the job was told about its own.
_STEP = ("srun", "--overlap", "--cpu-bind=none", "--export=ALL")


@dataclass(frozen=True)
class Allocation:
    """The allocation that Slurm gave us."""

    hosts: tuple[str, ...]
    tasks: tuple[int, ...] | None  # of each host; None: the user did not ask for a number
    cpus: tuple[int, ...]  # of each host

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Allocation:
        """Read it from the variables of a job."""
        if "SLURM_JOB_ID" not in environ or "SLURM_JOB_NODELIST" not in environ:
            raise UsageError(
                "--engine slurm must run inside an allocation, got none; get one with `salloc -N 2`, "
                "or write a batch script with --sbatch FILE and submit it"
            )
        asked = "SLURM_NTASKS" in environ and "SLURM_TASKS_PER_NODE" in environ
        hosts = expand_hosts(environ["SLURM_JOB_NODELIST"])
        return cls(
            hosts=hosts,
            tasks=tuple(tasks_per_node(environ["SLURM_TASKS_PER_NODE"])) if asked else None,
            cpus=tuple(tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", f"1(x{len(hosts)})"))),
        )

    def narrowed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of its hosts that were named, or all."""
        strange = [name for name in names if name not in self.hosts]
        if strange:
            raise UsageError(
                f"hosts must belong to the allocation, got {', '.join(strange)} beside {','.join(self.hosts)}; "
                "drop -H to use all of it"
            )
        return names or self.hosts


def srun_line(plan: LaunchPlan, allocation: Allocation, hostfile: str | None) -> tuple[str, ...]:
    """The step that runs all workers; `hostfile` lists the host of each rank where no simple rule would do."""
    counts = {host.name: len(host.workers) for host in plan.hosts}
    cpus = dict(zip(allocation.hosts, allocation.cpus, strict=True))
    crowded = any(count > cpus[name] for name, count in counts.items())
    dealt = "cyclic" if plan.rank_order == "round-robin" else "block"
    return (
        *_STEP,
        f"--job-name={plan.name}",
        f"--nodes={len(counts)}",
        f"--ntasks={plan.world_size}",
        *(
            ("--distribution=arbitrary",)
            if hostfile
            else (
                f"--nodelist={','.join(counts)}",
                f"--ntasks-per-node={max(counts.values())}",
                f"--distribution={dealt}",
            )
        ),
        *(("--overcommit",) if crowded else ()),
        "--label",
        "--kill-on-bad-exit=1",
        *adopt_argv(plan),
    )


def needs_hostfile(plan: LaunchPlan, allocation: Allocation) -> bool:
    """Return whether Slurm's own rules would deal the ranks in another way than planned."""
    counts = [(host.name, len(host.workers)) for host in plan.hosts]
    names = [name for name, _ in counts]
    ranks = tuple(tuple(worker.rank for worker in host.workers) for host in plan.hosts)
    return (
        len({count for _, count in counts}) > 1
        or names != [name for name in allocation.hosts if name in names]
        or ranks != deal(counts, plan.rank_order)
    )


class SlurmHosts(Hosts):
    """The hosts of an allocation, reached by steps of the job."""

    def start_on(self, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        return (*_STEP, "--job-name=weft-agent", "--nodes=1", "--ntasks=1", f"--nodelist={name}", *argv)


class SlurmEngine:
    """Workers in the Slurm allocation we are in."""

    name = "slurm"

    def __init__(self, config: LaunchConfig) -> None:
        self._config = config
        self._allocation = Allocation.from_env(os.environ)
        names = self._allocation.narrowed(config.host_names)
        entries = () if config.rankfile else tuple(HostEntry(name) for name in names)
        self.hosts = SlurmHosts(replace(config, hosts=entries))
        self.python = self.hosts.python

    def close(self) -> None:
        self.hosts.close()

    def sites(self) -> tuple[HostSite, ...]:
        tasks = self._allocation.tasks
        if tasks is None or self._config.workers is not None or self._config.per_host is not None:
            return self.hosts.sites()
        granted = dict(zip(self._allocation.hosts, tasks, strict=True))
        return tuple(replace(site, workers=granted[site.name]) for site in self.hosts.sites())

    def port(self) -> int:
        return self.hosts.port()

    def commands(self, plan: LaunchPlan) -> tuple[tuple[str, ...], ...]:
        agents = tuple(command.argv for command in self.hosts.agent_commands())
        return (
            *agents,
            srun_line(plan, self._allocation, "HOSTFILE" if needs_hostfile(plan, self._allocation) else None),
        )

    def run(self, plan: LaunchPlan, console: Console, *, run_id: str, run_dir: Path | None) -> Outcome:
        with _hostfile(plan, self._allocation) as hostfile:
            starter = Starter(
                name="srun",
                argv=srun_line(plan, self._allocation, hostfile),
                env={"SLURM_HOSTFILE": hostfile} if hostfile else {},
                tags=SLURM,
                polite=lambda _: signal.SIGUSR2,  # SIGTERM would make it kill the step at once
                reaches_all=True,
            )
            return run_starter(
                starter,
                plan,
                self._config,
                self.hosts.crew,
                console,
                run_id=run_id,
                run_dir=run_dir,
                sweep_host=lambda host: self.hosts.sweep(host, run_id),
            )


@contextmanager
def _hostfile(plan: LaunchPlan, allocation: Allocation) -> Iterator[str | None]:
    """The host of each rank, a line each, for srun alone to read."""
    if not needs_hostfile(plan, allocation):
        yield None
        return
    with TemporaryDirectory(prefix="weft-") as folder:
        path = Path(folder, "HOSTFILE")
        path.write_text("".join(f"{plan.host_of(rank)}\n" for rank in range(plan.world_size)))
        yield str(path)


def write_batch_script(config: LaunchConfig, target: str) -> None:
    """Write the batch script to a file; `-` prints it."""
    script = batch_script(config)
    if target == "-":
        sys.stdout.write(script)
        return
    try:
        path = Path(target)
        path.touch(0o700)  # values of --env are in it
        path.write_text(script)
    except OSError as error:
        raise UsageError(
            f"--sbatch must name a file that can be written, got {target}: {error.strerror}"
        ) from error
    print(f"weft: wrote {target}; submit it: sbatch {shlex.quote(target)}", file=sys.stderr)
