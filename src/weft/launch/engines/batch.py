"""A Slurm batch script for a request: pure. In the job, `weft run --engine slurm` finds out what it was given."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Collection
from pathlib import Path

from weft.errors import UsageError
from weft.launch.config import LaunchConfig

NOTICE_S = 60  # how long before its end a job is told, to save what it has


def batch_script(config: LaunchConfig) -> str:
    """The text of the script; options given to `sbatch` go before those in it."""
    if config.rankfile is not None:
        raise UsageError(
            "--sbatch must be given no rank file, got one: Slurm chooses the hosts; use --per-host and --rank-order"
        )
    directives = [f"#SBATCH --{name}={_quoted(value)}" for name, value in _request(config)]
    return "\n".join(
        [
            "#!/bin/bash",
            *directives,
            "# The workers of a host share all of it. Where hosts are shared with others, ask for your part instead:",
            "# --cpus-per-task=8 --gpus-per-node=4 --mem=64G",
            "#SBATCH --exclusive",
            "",
            "# exec: the notice before the end is for weft, which passes it on to the workers.",
            f"exec {shlex.join(run_line(config))}",
            "",
        ]
    )


def _request(config: LaunchConfig) -> list[tuple[str, str]]:
    request = [("job-name", config.command.name), ("nodes", str(hosts_wanted(config)))]
    if config.hosts:
        request.append(("nodelist", ",".join(entry.name for entry in config.hosts)))
    if config.workers is not None:
        request.append(("ntasks", str(config.workers)))
    elif count := _workers_per_host(config):
        request.append(("ntasks-per-node", str(count)))
    request += [("chdir", str(config.cwd)), ("output", f"{config.command.name}-%j.out")]
    return [*request, ("signal", f"B:TERM@{NOTICE_S}")]


def hosts_wanted(config: LaunchConfig) -> int:
    """As many as were named, or declared as dimensions, or one."""
    if config.hosts:
        return len(config.hosts)
    return math.prod(count or 1 for count in (config.hosts_per_rack, config.racks, config.aisles))


def _workers_per_host(config: LaunchConfig) -> int | None:
    named = {entry.workers for entry in config.hosts}
    if len(named) == 1 and None not in named:
        return named.pop()
    return config.per_host if isinstance(config.per_host, int) else config.accelerators


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


def run_line(config: LaunchConfig) -> list[str]:
    """The command that carries out this request inside a job."""
    weft = Path(sys.executable).with_name("weft")
    line = [str(weft) if weft.exists() else "weft", "run", "--engine", "slurm", *options_of(config)]
    for name, value in config.env:
        line += ["--env", f"{name}={value}"]
    command = config.command
    marker = {"module": ["-m"], "command": ["--"], "script": []}[command.kind]
    return [*line, *marker, command.target, *command.args]


def options_of(config: LaunchConfig, *, leave_out: Collection[str] = ()) -> list[str]:
    """The options of `weft run` for what a request says beside its hosts, its engine and its variables."""
    line: list[str] = []
    defaults = LaunchConfig.__dataclass_fields__
    for field, option in _OPTIONS.items():
        value = getattr(config, field)
        if value != defaults[field].default and field not in leave_out:
            line += [option] if value is True or value is False else [option, f"{value}"]
    return line


_OPTIONS = {
    "workers": "-n",
    "per_host": "--per-host",
    "mode": "--mode",
    "wire": "--wire",
    "replace": "--replace",
    "report": "--report",
    "trace": "--trace",
    "verify": "--verify",
    "debug": "--debug",
    "tcp": "--tcp",
    "rank_order": "--rank-order",
    "accelerators": "--accelerators",
    "hosts_per_rack": "--hosts-per-rack",
    "racks": "--racks",
    "aisles": "--aisles",
    "allow_uneven": "--allow-uneven",
    "python": "--python",
    "run_dir": "--run-dir",
    "max_restarts": "--max-restarts",
    "port": "--port",
    "interface": "--interface",
    "skip_checks": "--skip-checks",
    "pin": "--no-pin",
    "memory_bytes": "--memory",
    "grace_s": "--grace",
    "lost_after_s": "--lost-after",
    "verbose": "--verbose",
}
