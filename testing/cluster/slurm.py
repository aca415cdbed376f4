"""A real Slurm on the virtual cluster: its controller on the head, every host a node with its own slurmd.

with VirtualCluster(4) as cluster, Slurm(cluster) as slurm:
    slurm.run(["srun", "-N2", "-n4", "hostname"])
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from testing.cluster.cluster import VirtualCluster
from testing.cluster.require import missing_tools
from testing.cluster.waiting import wait_until

CPUS_PER_NODE = 4  # what Slurm is told; the hosts really share the processors of this machine


def missing() -> str | None:
    """Why no Slurm can be started here, if so."""
    return missing_tools("munged", "slurmctld", "slurmd", "sinfo", "srun")


def slurm_config(cluster: VirtualCluster, folder: Path) -> str:
    """A slurm.conf with nothing in it that would need cgroups, a database or a user of its own."""
    nodes = "".join(
        f"NodeName={host.name} NodeAddr={host.address} CPUs={CPUS_PER_NODE} State=UNKNOWN\n"
        for host in cluster.hosts
    )
    return f"""\
ClusterName=weft
SlurmctldHost=head({cluster.head.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n.spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# A job that finds its nodes busy is tried again within a second, not within half a minute.
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
# Believe this file, not what the machine looks like.
SlurmdParameters=config_overrides
ReturnToService=2
# Ends come quickly: nobody here needs a grace period.
KillWait=2
InactiveLimit=0
{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


class Slurm:
    """Its daemons live on the hosts of a cluster and end with them; `close` ends them sooner."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.nodes = [host.name for host in cluster.hosts]
        self.folder = cluster.folder / "slurm"
        self._daemons: list[subprocess.Popen[str]] = []
        cluster.infrastructure |= {"munged", "slurmctld", "slurmd", "slurmstepd"}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 30.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the head, where sbatch, salloc and srun find this Slurm."""
        env = {**self.environment, **(env or {})}
        return self.cluster.run(argv, env=env, cwd=cwd, timeout=timeout, check=check)

    def popen(
        self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        return self.cluster.popen(argv, env={**self.environment, **(env or {})}, cwd=cwd)

    def close(self) -> None:
        """End the daemons by force; may be called again."""
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()
        self._daemons.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self) -> None:
        (self.folder / "state").mkdir(parents=True)
        (self.folder / "slurm.conf").write_text(slurm_config(self.cluster, self.folder))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        places = [f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        # By force, for it would rather not run as root, nor under a temporary folder.
        self._daemon(
            ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *places], "head"
        )
        wait_until((self.folder / "munge.socket").exists, "munged")
        self._daemon(["slurmctld", "-D"], "head")
        for node in self.nodes:
            self._daemon(["slurmd", "-D", "-N", node], node)
        self.await_idle()

    def await_idle(self) -> None:
        """Until no node has anything left to do of a job that is over."""
        wait_until(self._all_idle, "idle nodes", timeout_s=60)

    def _daemon(self, argv: list[str], host: str) -> None:
        with (self.folder / f"{host}.{argv[0]}.out").open("w") as output:
            self._daemons.append(
                self.cluster.popen(
                    argv, on=host, env=self.environment, stdout=output, stderr=subprocess.STDOUT
                )
            )

    def _all_idle(self) -> bool:
        for daemon in self._daemons:
            if daemon.poll() is not None:
                raise RuntimeError(f"{daemon.args!r} ended with status {daemon.returncode}\n{self._said()}")
        states = self.run(["sinfo", "--noheader", "--Node", "--format=%T"], check=False).stdout.split()
        return states == ["idle"] * len(self.nodes)

    def _said(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in self.folder.glob("*.out"))
