"""The request of a user, as one typed object; flags, Python and rank files all fill it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from weft.collectives.choices import parse_mode, parse_replace, parse_wire
from weft.collectives.watching.settings import check_every, check_trace
from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.pod_settings import KubernetesConfig
from weft.secret import VARIABLE as SECRET_VARIABLE
from weft.topology.hostlist import MOST_WORKERS, HostEntry
from weft.topology.rankfile import Rankfile, RankOrder

LONGEST_S = 1_000_000  # 11 days: the system cannot wait for more than 24 at once
EngineName = Literal["auto", "local", "ssh", "mpi", "slurm", "kubernetes", "pods"]


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """One request to run a program on some machines."""

    command: Command
    workers: int | None = None  # in all
    per_host: int | Literal["gpu", "cpu", "auto"] | None = None
    hosts: tuple[HostEntry, ...] = ()  # none: this machine alone
    engine: EngineName = "auto"
    mode: str | None = None  # passed to the collectives
    wire: str | None = None  # the form of gradients between hosts
    parallel_plan: str | None = None  # the text of a plan file, for all workers
    replace: str | None = None  # backends of torch in whose place ours serves, joined by commas
    report: int | None = None  # steps from one table of times to the next
    trace: Path | None = None  # a timeline, written by rank 0 at the end
    verify: int | None = None  # all_reduces from one that is verified to the next
    debug: bool = False  # compare every call before it is carried out
    tcp: bool = False  # keep to TCP even where there is a faster fabric
    mpi_args: tuple[str, ...] = ()
    rankfile: Rankfile | None = None
    rank_order: RankOrder = "host"
    accelerators: int | None = None  # declared dimensions; the rest is inferred
    hosts_per_rack: int | None = None
    racks: int | None = None
    aisles: int | None = None
    allow_uneven: bool = False
    env: tuple[tuple[str, str], ...] = ()
    cwd: Path = field(default_factory=Path.cwd)
    python: str | None = None  # on every host; None: the one that runs the launcher
    run_dir: Path | None = None
    max_restarts: int = 0
    min_hosts: int | None = (
        None  # a restart may do without hosts that are lost, down to so many; None: it may not
    )
    port: int | None = None
    interface: str | None = None  # a network card, against our own choice
    skip_checks: bool = False
    pin: bool = True
    memory_bytes: int | None = None  # that each worker may hold; None: as much as there is
    grace_s: float = 3.0  # between asking a worker to end and ending it
    lost_after_s: float = 2.5  # silence after which a host, or the launcher, counts as lost
    verbose: bool = False
    kubernetes: KubernetesConfig | None = None  # of the engine of that name

    def __post_init__(self) -> None:
        _positive("workers (-n)", self.workers)
        if isinstance(self.per_host, int):
            _positive("workers per host (--per-host)", self.per_host)
        if self.port is not None and not 0 < self.port < 65536:
            raise UsageError(
                f"--port must be between 1 and 65535, got {self.port}; leave it out to have one picked"
            )
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise UsageError(
                f"--memory must be at least 1 byte, got {self.memory_bytes}; write --memory 16GiB"
            )
        if self.max_restarts < 0:
            raise UsageError(f"--max-restarts must not be negative, got {self.max_restarts}; use 0 for none")
        # NaN is within no bounds.
        if not (0 <= self.grace_s <= LONGEST_S and 0 < self.lost_after_s <= LONGEST_S):
            raise UsageError(
                "--grace must not be negative and --lost-after must be more than 0 seconds, "
                f"neither more than {LONGEST_S}, got {self.grace_s:g} and {self.lost_after_s:g}; "
                "leave them out for 3 and 2.5"
            )
        if self.mode is not None:
            parse_mode(self.mode)
        if self.wire is not None:
            parse_wire(self.wire)
        if self.parallel_plan is not None and self.kubernetes is not None:
            raise UsageError("--plan runs on the engines local and ssh, got kubernetes; drop one of the two")
        if self.replace is not None:
            parse_replace(self.replace)
        check_every("--report", self.report, 10)
        check_every("--verify", self.verify, 100)
        if self.trace is not None:
            check_trace(self.cwd / self.trace, here=not self.host_names)
        if self.workers is not None and self.per_host is not None:
            raise UsageError(
                f"give the workers in all (-n {self.workers}) or on each host (--per-host {self.per_host}), "
                "got both; drop one"
            )
        if self.rankfile is not None and self.hosts:
            named, ranked = {entry.name for entry in self.hosts}, set(self.rankfile.hosts)
            if named != ranked:
                raise UsageError(
                    f"the host list and the rank file must name the same hosts, got {', '.join(sorted(named))} "
                    f"and {', '.join(sorted(ranked))}; drop -H"
                )
        in_image = self.kubernetes is None or self.kubernetes.code != "snapshot"
        if self.engine != "kubernetes" or not in_image:  # an image has files that this machine need not have
            self.command.check(self.cwd)

    @property
    def host_names(self) -> tuple[str, ...]:
        """The hosts that were named, on the command line or in a rank file; none for this machine alone."""
        if self.hosts or self.rankfile is None:
            return tuple(entry.name for entry in self.hosts)
        return self.rankfile.hosts


def _positive(what: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise UsageError(f"{what} must be at least 1, got {value}; leave it out for one per accelerator")
    if value is not None and value > MOST_WORKERS:
        raise UsageError(f"{what} must be at most {MOST_WORKERS}, got {value}; mend the number")


# Carried to every host without being asked for: they change how a program computes or communicates,
# and a run in which only some hosts have them is the hardest kind to understand.
CARRIED_PREFIXES = (
    "CUBLAS_", "CUDA_", "DDL_", "GLOO_", "HF_", "HOROVOD_", "KMP_", "MKL_", "NCCL_", "OMP_", "OPENBLAS_",
    "PYTHON", "PYTORCH_", "TORCH_", "TRANSFORMERS_", "WANDB_", "WEFT_",
)  # fmt: skip
CARRIED_NAMES = ("LD_LIBRARY_PATH", "PATH", "TERM", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")


def carried_variables(environ: dict[str, str] | None = None) -> dict[str, str]:
    """The caller's variables that every worker gets, wherever it runs."""
    source = dict(os.environ) if environ is None else environ
    return {
        name: value
        for name, value in source.items()
        if (name in CARRIED_NAMES or name.startswith(CARRIED_PREFIXES))
        and name not in (SECRET_VARIABLE, "WEFT_DOOR_SECRET")
    }
