"""The text of a launch plan, as `--dry-run` prints it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from weft.launch.masking import masked
from weft.launch.plan import LaunchPlan
from weft.text import plural
from weft.topology.cpulist import format_cpulist


def render_plan(plan: LaunchPlan, commands: Sequence[Sequence[str]]) -> str:
    """Return a plan as a person reads it."""
    lines = [
        f"run         {plan.name}: {shlex.join(plan.argv)}",
        f"engine      {plan.engine}",
        f"world       {plural(plan.world_size, 'worker')} on {plural(len(plan.hosts), 'host')}, "
        f"dimensions {plan.dimensions} (accelerators x hosts x racks x aisles)",
        f"leader      {plan.leader} port {plan.port}",
        f"folder      {plan.cwd}",
        "",
        f"{'rank':>4}  {'host':<16} {'local':>5}  {'cores':<10} {'processors':<14} {'threads':>7}  "
        f"{'accelerator':<11} card",
    ]
    rows = [(worker.rank, host, worker) for host in plan.hosts for worker in host.workers]
    for rank, host, worker in sorted(rows, key=lambda row: row[0]):
        place = worker.placement
        lines.append(
            f"{rank:>4}  {host.name:<16} {worker.local_rank:>5}  {place.slot if place else '-':<10} "
            f"{format_cpulist(place.cpus) if place else '-':<14} {dict(worker.env).get('OMP_NUM_THREADS', '-'):>7}  "
            f"{'-' if place is None or place.accelerator is None else place.accelerator:<11} "
            f"{host.interface or '-'} {host.address}"
        )
    lines += ["", "environment of every worker"]
    lines += [f"  {name}={value}" for name, value in masked(plan.env, plan.given_env).items()]
    lines += [f"environment of rank {rows[0][0]}"]
    lines += [f"  {name}={value}" for name, value in masked(rows[0][2].env, plan.given_env).items()]
    lines += ["", "commands"]
    lines += [f"  + {shlex.join(command)}" for command in commands]
    return "\n".join(lines)
