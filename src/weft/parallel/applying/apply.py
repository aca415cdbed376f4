"""`apply`: a model and its optimizer, run in the way of a plan, by torch's own DDP and FSDP2."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from weft.errors import UsageError
from weft.launch.environment import RECORDING_VARIABLE
from weft.parallel.applying import groups
from weft.parallel.applying.checks import can_shard, check_ready, check_shards
from weft.parallel.applying.comparing import StepTimer
from weft.parallel.applying.from_launcher import by_a_plan, plan_from_env
from weft.parallel.applying.passes import ATTRIBUTE
from weft.parallel.applying.sharding import shard
from weft.parallel.planning.choice import choose
from weft.parallel.planning.plan_file import ParallelPlan, check_for, for_hosts, make_plan, read_plan
from weft.parallel.prediction.way import KINDS, Way
from weft.parallel.recording.optimizers import arguments_of, follow
from weft.parallel.recording.recorder import Batch


def apply(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    plan: str | Path | ParallelPlan | Way = "auto",
    *,
    batch: Batch | None = None,
    passes: int = 1,
    loss: Callable[[Any], torch.Tensor] | None = None,
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return model and optimizer as the plan has them; a collective call, before the first step.

    `plan` is a plan file, a plan, a way, or `"auto"`: the plan of `weft run --plan`, or one made here from a step over
    `batch` (what the model is called with: arguments, a mapping of those with names, or a tensor) and `loss` of what it
    returns (its own `loss`, or a mean), and from collectives measured now. Parameters and buffers become rank 0's
    everywhere. While `weft plan` records the script, the model stays as it is: the record is what plans are made from.
    """
    check_ready(model, optimizer)
    if RECORDING_VARIABLE in os.environ:
        setattr(model, ATTRIBUTE, Way())
        return model, optimizer
    found = _plan(model, optimizer, plan, batch, passes, loss)
    way = found.way if isinstance(found, ParallelPlan) else found
    if isinstance(found, ParallelPlan) and plan != "auto":
        hosts = groups.hosts_of_ranks()
        check_for(found, [str(number) for number in range(len(hosts))], dist.get_world_size())
    if way.shards:
        check_shards(model, optimizer)
    _same_everywhere(model)
    if not way.shards:
        model, optimizer = _replicated(model, optimizer, way, found)
    else:
        shard(model, optimizer, way)
    setattr(model, ATTRIBUTE, way)
    if way.local_steps > 1:
        _average_now_and_then(model, optimizer, way.local_steps)
    if isinstance(found, ParallelPlan) and plan_from_env(os.environ) is None:
        optimizer.register_step_post_hook(StepTimer(found, dist.get_rank()).stepped)
    return model, optimizer


def _plan(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    plan: Any,
    batch: Batch | None,
    passes: int,
    loss: Callable[[Any], torch.Tensor] | None,
) -> ParallelPlan | Way:
    if isinstance(plan, (ParallelPlan, Way)):
        return plan
    if plan != "auto":
        return read_plan(Path(plan))
    if (given := plan_from_env(os.environ)) is not None:
        return _for_those_here(given)
    if batch is None:
        raise UsageError(
            'plan="auto" must have a step to plan for, got none; give batch=..., a plan file, or use weft run --plan'
        )
    from weft.parallel.recording.here import measured_here, recorded_here

    step = recorded_here(model, batch, loss=loss, optimizer=optimizer, passes=passes)
    cluster = measured_here(groups.hosts_of_ranks())
    kinds = [kind for kind in KINDS if not Way(kind=kind).shards or can_shard(model, optimizer)]
    chosen: list[Any] = [make_plan(step, cluster, choose(step, cluster, kinds=kinds), "rounding")]
    dist.broadcast_object_list(chosen)
    made: ParallelPlan = chosen[0]
    return made


def _for_those_here(plan: ParallelPlan) -> ParallelPlan:
    """Return the run's plan for the hosts that are left, or have come, since it began: of the same kind."""
    hosts = groups.hosts_of_ranks()
    if len(hosts) == plan.cluster.host_count and dist.get_world_size() == plan.cluster.world:
        return plan
    names = [f"host{number}" for number in range(len(hosts))]
    return for_hosts(plan, names, max(map(len, hosts)))


def _same_everywhere(model: nn.Module) -> None:
    """Give every rank the parameters and buffers of rank 0."""
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)


def _replicated(
    model: nn.Module, optimizer: torch.optim.Optimizer, way: Way, found: ParallelPlan | Way
) -> tuple[nn.Module, torch.optim.Optimizer]:
    if way.kind == "lms":
        optimizer = _swapped(model, optimizer, found)
    everyone = list(range(dist.get_world_size()))
    group = groups.group_of(everyone, way.wire, dict(os.environ))
    if way.local_steps > 1:
        return model, optimizer
    with by_a_plan():
        wrapped = nn.parallel.DistributedDataParallel(
            model,
            process_group=group,
            bucket_cap_mb=max(1, way.bucket_bytes >> 20),
            gradient_as_bucket_view=True,
        )
    if way.wire != "fp32" and not groups.is_ours():
        from weft.collectives import hooks

        wrapped.register_comm_hook(group, hooks.fp16_hook if way.wire == "fp16" else hooks.bf16_hook)
    if way.kind == "zero1":
        from weft.parallel.applying.sharded_state import ShardedStateOptimizer

        parts = [{"params": part["params"], **arguments_of(part)} for part in optimizer.param_groups]
        made: Any = ShardedStateOptimizer(
            parts, optimizer_class=type(optimizer), process_group=group, parameters_as_bucket_view=True
        )
        follow(made, optimizer)
        return wrapped, made
    return wrapped, optimizer


def _swapped(
    model: nn.Module, optimizer: torch.optim.Optimizer, found: ParallelPlan | Way
) -> torch.optim.Optimizer:
    if not next(model.parameters()).is_cuda or not isinstance(found, ParallelPlan):
        raise UsageError(
            "large model support must have an accelerator and a plan with a budget, got the CPU or a bare way; "
            "choose another way"
        )
    from weft import lms

    _, wrapped = lms.wrap(model, optimizer, limit=found.cluster.device_bytes)
    assert wrapped is not None
    return wrapped


def _average_now_and_then(model: nn.Module, optimizer: torch.optim.Optimizer, every: int) -> None:
    """Average the parameters of all workers after a number of steps of their own."""
    steps = 0

    def average(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps % every == 0:
            with torch.no_grad():
                for parameter in model.parameters():
                    dist.all_reduce(parameter, op=dist.ReduceOp.AVG)

    optimizer.register_step_post_hook(average)
