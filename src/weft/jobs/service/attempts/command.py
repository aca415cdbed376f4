"""The command of a keeper: `weft run` for one attempt of a job, and the environment it runs in. Pure.

Values of variables are in the environment, never on the command line, where every user of the machine could read them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.jobs.service.attempts.on_kubernetes import pod_options, pod_settings
from weft.jobs.service.attempts.system_user import SystemUser, user_environment
from weft.jobs.spec.read import ResolvedSpec
from weft.jobs.store.attempts import AttemptShare
from weft.launch.masking import looks_secret
from weft.launch.pod_settings import KubernetesConfig
from weft.reporting.advice import VARIABLE as ADVICE_VARIABLE
from weft.topology.hostlist import HostEntry

TOKEN_VARIABLE = "_WEFT_KEEPER"  # of the launcher; its name keeps it from being carried to workers
HOSTFILE = "hosts"
ADVICE_FILE = "advice.jsonl"  # of an attempt
# Of the service's own variables: ssh needs them to reach other hosts.
_NEEDED = frozenset({"SSH_AUTH_SOCK", "WEFT_SSH_CONFIG"})


@dataclass(frozen=True, kw_only=True)
class AttemptPlan:
    """Everything that the command of an attempt depends on."""

    job_id: int
    number: int
    name: str
    resolved: ResolvedSpec
    shares: tuple[AttemptShare, ...]
    folder: Path  # of the attempt
    checkpoints: Path  # of the job: all attempts share it
    token: str
    may_spread: bool = False  # an elastic run may grow onto other hosts than those it begins on
    variables: Mapping[str, str] | None = None  # data folders, tracking, secrets
    owner: SystemUser | None = None  # as whom it runs; None: as the service


@dataclass(frozen=True)
class KeeperCommand:
    """A process to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    hostfile: str
    owner: SystemUser | None = None
    pods: KubernetesConfig | None = None  # of an attempt on Kubernetes
    staged: frozenset[str] = frozenset()  # variables whose values are folders that were fetched or registered


def is_elastic(resolved: ResolvedSpec) -> bool:
    return resolved.min_workers < resolved.max_workers and resolved.spec.engine in ("auto", "local", "ssh")


def keeper_command(
    plan: AttemptPlan, *, python: str, environ: Mapping[str, str], grace_s: float
) -> KeeperCommand:
    """Return the command that runs an attempt on its hosts."""
    variables = worker_variables(plan)
    on_kubernetes = plan.resolved.spec.engine == "kubernetes"
    options = [
        *("--run-dir", str(plan.folder / "run")),
        *(() if on_kubernetes else ("--hostfile", str(plan.folder / HOSTFILE))),
        "--allow-uneven",
        *("--grace", f"{grace_s:g}"),
        *(pod_options(plan.resolved, str(plan.folder)) if on_kubernetes else ()),
        *_sizes(plan),
    ]
    for name in sorted(variables):
        options += ["--env", name]
    # -P: the job's folder may hold a file named like a module that the launcher imports.
    argv = (*_allocation(plan), python, "-P", "-m", "weft", "run", *options, *_program(plan.resolved))
    env = {**user_environment(inherited(environ), plan.owner), **variables, TOKEN_VARIABLE: plan.token}
    entries = "".join(f"{entry_of(share).to_line()}\n" for share in plan.shares)
    settings = pod_settings(plan.resolved, job_id=plan.job_id, number=plan.number) if on_kubernetes else None
    return KeeperCommand(argv, env, plan.folder / "code", entries, plan.owner, pods=settings)


def adopt_command(
    plan: AttemptPlan, *, python: str, environ: Mapping[str, str], grace_s: float
) -> KeeperCommand:
    """Return the command that takes over an elastic run, or one in pods, whose launcher here has died."""
    first = keeper_command(plan, python=python, environ=environ, grace_s=grace_s)
    words = ("kubernetes", "attach") if first.pods is not None else ("run", "--adopt")
    argv = (python, "-P", "-m", "weft", *words, str(plan.folder / "run"))
    return KeeperCommand(argv, first.env, first.cwd, first.hostfile, plan.owner)


def entry_of(share: AttemptShare) -> HostEntry:
    """Return a part of a host as the launcher is told it."""
    return HostEntry(share.host, share.workers, share.cpus, share.gpus)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what of the service's own environment its jobs get: nothing of ours, and nothing secret."""
    return {
        name: value
        for name, value in environ.items()
        if name in _NEEDED or not (name.startswith(("WEFT_", "_WEFT", "MLFLOW_")) or looks_secret(name))
    }


def worker_variables(plan: AttemptPlan) -> dict[str, str]:
    """Return the variables that every worker gets; the job's own win over data folders, ours over both."""
    return {
        **(plan.variables or {}),
        **plan.resolved.env,
        "WEFT_JOB_ID": str(plan.job_id),
        "WEFT_JOB_NAME": plan.name,
        "WEFT_ATTEMPT": str(plan.number),
        "WEFT_OUTPUTS": str(plan.folder / "outputs"),
        "WEFT_CHECKPOINT": str(plan.checkpoints),
        ADVICE_VARIABLE: str(plan.folder / ADVICE_FILE),
    }


def _sizes(plan: AttemptPlan) -> list[str]:
    """Return the options about how many workers there are and what each may use."""
    resolved = plan.resolved
    options: list[str] = []
    if is_elastic(resolved):
        options += ["--elastic", f"{resolved.min_workers}:{resolved.max_workers}"]
        options += ["--checkpoint", str(plan.checkpoints)]
        if plan.may_spread:  # the engine local would keep it on this machine
            options += ["--engine", "ssh"]
    elif resolved.spec.engine in ("mpi", "slurm"):
        options += ["--engine", resolved.spec.engine]
    if resolved.lms_bytes is not None:
        options += ["--lms", str(resolved.lms_bytes)]
    if resolved.memory_bytes:
        options += ["--memory", str(resolved.memory_bytes)]
    return options


def _program(resolved: ResolvedSpec) -> tuple[str, ...]:
    command = resolved.command
    match command.kind:
        case "script":
            return (command.target, *command.args)
        case "module":
            return ("-m", command.target, *command.args)
        case "command":
            return ("--", command.target, *command.args)


def _allocation(plan: AttemptPlan) -> tuple[str, ...]:
    """Return Slurm's command for an allocation, where Slurm places the workers."""
    resolved, resources = plan.resolved, plan.resolved.spec.resources
    if resolved.spec.engine != "slurm":
        return ()
    options = [
        "salloc",
        "--quiet",
        f"--job-name=weft-{plan.job_id}",
        f"--ntasks={resolved.min_workers}",
        f"--cpus-per-task={max(1, round(resources.cpus))}",
    ]
    if resources.gpus:
        options.append(f"--gpus-per-task={max(1, round(resources.gpus))}")
    if resolved.memory_bytes:
        cpus = max(1, round(resources.cpus))
        options.append(f"--mem-per-cpu={-(-resolved.memory_bytes // (cpus << 20))}M")
    if resolved.time_limit_s is not None:
        options.append(f"--time={max(1, -(-int(resolved.time_limit_s) // 60))}")
    return tuple(options)


def service_environment() -> Mapping[str, str]:
    """Return the service's own environment, read once at the edge."""
    return dict(os.environ)
