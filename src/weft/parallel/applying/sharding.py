"""A model sharded by torch's FSDP2 as a way has it: over all workers, or within hosts and replicated across them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from weft.parallel.applying import groups
from weft.parallel.applying.overlap import OverlappedReduceScatter, PendingReductions
from weft.parallel.applying.torch_private import gather_in_background
from weft.parallel.prediction.way import Way
from weft.parallel.recording.layers import own_parameters, sharded_apart


def shard(model: nn.Module, optimizer: torch.optim.Optimizer, way: Way) -> None:
    """Shard over the workers that a way has share a model."""
    shard_over(model, optimizer, way, *_shard_groups(way))


def shard_over(
    model: nn.Module, optimizer: torch.optim.Optimizer, way: Way, shards: Any, across: Any = None
) -> None:
    """Shard layer by layer, then what is left in the model; the optimizer's parameters become the shards.

    `shards` is the group that this rank's shards are spread over, `across` that of those who hold the same ones.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    device = next(model.parameters()).device
    mesh = DeviceMesh.from_group(shards, device.type, mesh_dim_names=("shard",))
    layers = sharded_apart(model)
    names = {id(one): name for name, one in model.named_parameters()}
    resharding = way.kind in ("fsdp", "hsdp")
    for layer in layers.values():
        fully_shard(layer, mesh=mesh, reshard_after_forward=resharding)
    fully_shard(model, mesh=mesh, reshard_after_forward=resharding)
    sharded = dict(model.named_parameters())
    for part in optimizer.param_groups:
        part["params"] = [sharded[names[id(one)]] for one in part["params"]]
    modules: list[Any] = [model, *layers.values()]
    if device.type == "cpu":
        gather_in_background(model)
    owned = own_parameters(model, layers)
    pending = PendingReductions()
    for name, module in {"model": model, **layers}.items():
        if device.type == "cpu" or across is not None:
            some_module: Any = module
            some_module.set_custom_reduce_scatter(
                OverlappedReduceScatter(pending, owned.get(name, []), across)
            )
    _prefetch(modules[1:], way.prefetch)


def _shard_groups(way: Way) -> tuple[Any, Any]:
    """Return the group that this rank's shards are spread over, and for HSDP that of the same shard on all hosts."""
    environ, rank = dict(os.environ), dist.get_rank()
    if way.kind != "hsdp":
        return groups.group_of(list(range(dist.get_world_size())), way.wire, environ), None
    hosts = groups.hosts_of_ranks()
    workers = groups.even_hosts(hosts)
    local = [groups.group_of(ranks, "fp32", environ) for ranks in hosts]
    across = [groups.group_of([ranks[n] for ranks in hosts], way.wire, environ) for n in range(workers)]
    host = next(number for number, ranks in enumerate(hosts) if rank in ranks)
    return local[host], across[hosts[host].index(rank)] if len(hosts) > 1 else None


def _prefetch(layers: Sequence[Any], depth: int) -> None:
    """Let each layer gather those that come next, forward and backward, as deep as the plan says."""
    for number, layer in enumerate(layers):
        if following := list(layers[number + 1 : number + 1 + depth]):
            layer.set_modules_to_forward_prefetch(following)
        if before := list(reversed(layers[max(0, number - depth) : number])):
            layer.set_modules_to_backward_prefetch(before)
