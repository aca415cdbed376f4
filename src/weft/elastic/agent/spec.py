"""The description of the run for the agent of one host, made from the plan and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from weft.elastic.agent.launcher_messages import AgentSpec, WorkerSlot
from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.recruits import HostRecord
from weft.elastic.membership.reports import AgentAddress
from weft.elastic.membership.view import View
from weft.launch.plan import LaunchPlan
from weft.reporting.names import VARIABLE as METRICS_VARIABLE
from weft.reporting.names import file_channel
from weft.secret import VARIABLE as SECRET_VARIABLE

# Variables that each worker finds out for itself, when it joins.
_FOUND_BY_WORKERS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_DIMENSIONS")


def make_agent_spec(
    host: HostRecord,
    plan: LaunchPlan,
    elastic: ElasticConfig,
    *,
    run: str,
    run_dir: Path,
    grace_s: float,
    expected: int,
    secret: str,
    view: View,
    roster: Mapping[str, AgentAddress],
    here: bool = False,
) -> AgentSpec:
    """Describe the run to the agent of one host: its slots, the rules for all, where the other agents are.

    Workers on the launcher's machine, `here`, write what they log into the run directory themselves.
    """
    env = {
        **dict(plan.env),
        "WEFT_RUN_ID": run,
        "WEFT_RUN_DIR": str(run_dir),
        "TORCHELASTIC_RUN_ID": run,
        "WEFT_HOST": host.name,
        SECRET_VARIABLE: secret,
    }
    if elastic.checkpoint is not None:
        env["WEFT_CHECKPOINT"] = str(elastic.checkpoint)
    if elastic.checkpoint_every is not None:
        env["WEFT_CHECKPOINT_EVERY"] = str(elastic.checkpoint_every)
    return AgentSpec(
        run=run,
        run_dir=str(run_dir),
        host=host.name,
        agent=host.agent,
        witness=host.witness,
        life=f"{host.lives}-" if host.lives else "",
        address=host.address,
        cwd=plan.cwd,
        env=_without_found(env),
        argv=tuple(plan.argv),
        slots=slots_of(host, run_dir if here else None),
        least=elastic.least,
        most=elastic.most,
        expected=expected,
        detect_within_s=elastic.detect_within_s,
        start_within_s=elastic.start_within_s,
        alone_s=elastic.alone_s,
        slow=elastic.slow,
        grace_s=grace_s,
        memory_bytes=plan.memory_bytes,
        secret=secret,
        view=view,
        roster=dict(roster),
    )


def slots_of(host: HostRecord, run_dir: Path | None) -> tuple[WorkerSlot, ...]:
    """Return the slots of a host as it is planned."""
    workers = host.plan.workers if host.plan else ()
    return tuple(
        WorkerSlot(
            number=worker.local_rank,
            rank=rank,
            env=_without_found(dict(worker.env)) | _channel(run_dir, rank),
            cpus=tuple(worker.placement.cpus) if worker.placement else (),
            numa=tuple(worker.placement.numa) if worker.placement else (),
        )
        for worker, rank in zip(workers, host.ranks, strict=False)  # a host that shrank keeps its ranks
    )


def _channel(run_dir: Path | None, rank: int) -> dict[str, str]:
    return {} if run_dir is None else {METRICS_VARIABLE: file_channel(str(run_dir), rank)}


def _without_found(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in _FOUND_BY_WORKERS}
