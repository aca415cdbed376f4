"""Checks of a model and its optimizer before a plan is applied: nothing is half done."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DataParallel, DistributedDataParallel

from weft.errors import UsageError
from weft.parallel.recording.layers import own_parameters, sharded_apart
from weft.text import plural


def check_ready(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuse what no way can be applied to."""
    if not dist.is_initialized():
        raise UsageError("a plan must be applied in a world of workers, got none; call weft.init() first")
    if not isinstance(model, nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            "a plan must be applied to a module and its optimizer, got "
            f"{type(model).__name__} and {type(optimizer).__name__}; give apply both"
        )
    if not any(True for _ in model.parameters()):
        raise UsageError(
            f"a model must have parameters, got {type(model).__name__} with none; give apply the one that trains"
        )
    if isinstance(model, (DistributedDataParallel, DataParallel, FSDPModule)):
        raise UsageError(
            f"a model must not be wrapped or sharded yet, got {type(model).__name__}; apply wraps it as the plan says"
        )
    if optimizer.state:
        raise UsageError(
            "a plan must be applied before the first step, got an optimizer that has state; apply it earlier"
        )


def check_shards(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuse what cannot be sharded."""
    if why := _unshardable(model, optimizer):
        raise UsageError(why)


def can_shard(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a model and its optimizer can be sharded."""
    return not _unshardable(model, optimizer)


def _unshardable(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    known = {id(one) for one in model.parameters()}
    others = sum(id(one) not in known for group in optimizer.param_groups for one in group["params"])
    if others:
        return (
            f"an optimizer must hold parameters of the model alone to shard it, got {plural(others, 'other')}; "
            "give apply the module that holds them all"
        )
    for name, parameters in own_parameters(model, sharded_apart(model)).items():
        types = {str(one.dtype).removeprefix("torch.") for one in parameters if one.requires_grad}
        if len(types) > 1:
            text = " and ".join(sorted(types))
            return (
                f"a layer must train parameters of one type to be sharded, got {text} in {name}; plan for ddp, "
                "or give them one type"
            )
    return ""
