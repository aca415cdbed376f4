"""The launch of a run with a plan: `weft run --plan auto|FILE`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from weft.errors import UsageError
from weft.launch.config import LaunchConfig
from weft.parallel.planning.candidates import BUCKETS
from weft.parallel.planning.choice import choose
from weft.parallel.planning.plan_file import (
    ParallelPlan,
    check_for,
    make_plan,
    network_changed,
    read_plan,
    replan,
)
from weft.parallel.prediction.cluster import ClusterFacts, on_cpus
from weft.parallel.prediction.way import Way
from weft.parallel.recording.launching import record_script
from weft.parallel.recording.sources import kept_links, measured_cluster
from weft.text import format_seconds

AUTO = "auto"


def planned_launch(
    config: LaunchConfig, asked: str, *, dry: bool = False, elastic: bool = False
) -> tuple[LaunchConfig, str]:
    """Return the launch with its plan, and what to say about it; nothing of the run itself is started.

    `auto` records one worker of the script and plans for DDP, which needs no code. A plan file is taken as it is, or
    made anew where the links have been measured to be others than those it was made for, or where it shards and each
    worker of an elastic run keeps a whole model.
    """
    if asked == AUTO:
        if dry:
            return config, "a plan would be made from a few steps of one worker"
        plan, told = _plan_from_script(config), ""
    else:
        plan = read_plan(Path(asked))
        _check(plan, config)
        plan, told = _renewed(plan, config)
        if elastic and plan.way.kind != "ddp":
            told += f"workers of an elastic run keep whole models, so ddp is planned for in place of {plan.way.kind}; "
            plan = replan(plan, plan.cluster, kinds=("ddp",))
    wire = config.wire or plan.way.wire
    predicted = f"{plan.way}: a step is predicted to take {format_seconds(plan.predicted.step_s)}"
    return (
        replace(config, wire=wire if wire != "fp32" or config.wire else None, parallel_plan=plan.to_text()),
        f"{told}{predicted}, {plan.predicted.computing_share:.0%} of it computing",
    )


def _plan_from_script(config: LaunchConfig) -> ParallelPlan:
    if config.command.kind != "script":
        raise UsageError(
            f"--plan auto must have a script to record, got a {config.command.kind}; use a plan file of weft plan"
        )
    names, workers = _hosts(config)
    cluster = measured_cluster(names, workers)
    host = config.hosts[0] if config.hosts else None
    step = record_script(config.command.target, config.command.args, host, workers)
    if step.device == "cpu":
        cluster = on_cpus(cluster)
    # The passes of a step are the script's: only what is not in its code may change.
    choice = choose(step, cluster, kinds=("ddp",), ways=_without_code(step.passes, cluster))
    return make_plan(step, cluster, choice, "rounding")


def _without_code(passes: int, cluster: ClusterFacts) -> list[Way]:
    every = passes > 1  # plain DDP reduces in every pass
    wires = ("fp32", "bf16", "fp16") if cluster.host_count > 1 else ("fp32",)
    return [
        Way(wire=wire, bucket_bytes=bucket, sync_every_pass=every) for wire in wires for bucket in BUCKETS
    ]


def _hosts(config: LaunchConfig) -> tuple[tuple[str, ...], int]:
    """Return the hosts of a launch and the workers on each, which must be as many."""
    names = config.host_names or ("localhost",)
    if config.workers is not None:
        counts = {config.workers // len(names)} if config.workers % len(names) == 0 else {0, 1}
    else:
        usual = config.per_host if isinstance(config.per_host, int) else 1
        counts = {entry.workers or usual for entry in config.hosts} or {usual}
    if len(counts) > 1:
        raise UsageError(
            "hosts must have equally many workers to be planned for, got different numbers; give --per-host"
        )
    return names, counts.pop()


def _check(plan: ParallelPlan, config: LaunchConfig) -> None:
    names, workers = _hosts(config)
    check_for(plan, names, workers * len(names))


def _renewed(plan: ParallelPlan, config: LaunchConfig) -> tuple[ParallelPlan, str]:
    """Return the plan for the links as they were measured last, if they are others than those of the plan."""
    names, workers = _hosts(config)
    links = kept_links()
    if len(names) == 1 or any((a, b) not in links for a in names for b in names if a != b):
        return plan, ""
    card_bps = measured_cluster(names, workers, links).card_bps
    if not network_changed(plan, card_bps):
        return plan, ""
    before = plan.cluster.card_bps
    cluster = replace(plan.cluster, card_bps=card_bps, measured={})
    text = f"links carry {card_bps * 8 / 1e9:.3g} Gbit/s where the plan has {before * 8 / 1e9:.3g}: planned anew; "
    return replan(plan, cluster), text
