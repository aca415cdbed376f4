"""Features of torch.distributed that ask a group about its backend or its devices: one line about each.

    features.py BACKEND FOLDER

A script of its users: it makes the world by the name it is given, and never says which group it means.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as _differentiable
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed._composable.replicate import replicate
from torch.distributed._shard import sharded_tensor
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817
from torch.utils.data import DistributedSampler

backend, folder = sys.argv[1], Path(sys.argv[2])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
dist.init_process_group(backend, timeout=timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
left, right = (rank - 1) % size, (rank + 1) % size
FEATURES: dict[str, Callable[[], Any]] = {}
differentiable: Any = _differentiable  # whose functions have no types


def feature(case: Callable[[], Any]) -> Callable[[], Any]:
    FEATURES[case.__name__] = case
    return case


def values(*shape: int, seed: int | None = None) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank if seed is None else seed))


def new_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for step in range(steps):
        model(values(4, 6, seed=10 * rank + step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def trained(model: nn.Module) -> list[Tensor]:
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return parameters(model)


def parameters(model: nn.Module) -> list[Tensor]:
    return [value.full_tensor() if isinstance(value, DTensor) else value for value in model.parameters()]


# -- questions -----------------------------------------------------------------------------------------------------


@feature
def devices() -> Any:
    """The group serves the CPU, and whatever asks for a device gets it."""
    assert "cpu" in c10d._device_capability()
    return [
        str(c10d._get_pg_default_device()),
        c10d._get_object_coll_device(),
        "cpu" in dist.get_backend_config(),
    ]


@feature
def backend_of_a_device() -> Any:
    found: Any = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    return [found.rank(), found.size(), found.supports_splitting, found.supports_coalescing]


@feature
def a_timeout_that_is_set_later() -> Any:
    c10d._set_pg_timeout(timedelta(seconds=59))
    return None


@feature
def ranks_of_groups() -> Any:
    group = dist.new_group([size - 1, 0])
    told = [dist.get_process_group_ranks(group), dist.get_group_rank(group, 0), dist.get_world_size(group)]
    return [told, dist.get_pg_count() > 1]


@feature
def splitting() -> Any:
    """Gloo refuses it, and so do we."""
    try:
        dist.split_group(split_ranks=[list(range(size))])
    except RuntimeError as error:
        return str(error)
    return None


# -- objects and messages ------------------------------------------------------------------------------------------


@feature
def objects() -> Any:
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, {"rank": rank})
    told: list[Any] = [values(3), "words"] if rank == 0 else [None, None]
    dist.broadcast_object_list(told, 0)
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(("of", rank), gathered, 0)
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"for {peer}" for peer in range(size)], 0)
    return [everyone, told, gathered, mine]


@feature
def objects_as_messages() -> Any:
    came: list[Any] = [None]
    if rank == 0:
        dist.send_object_list([{"from": rank}], 1)
    elif rank == 1:
        dist.recv_object_list(came, 0)
    return came


@feature
def batch_of_messages() -> Any:
    came = torch.zeros(100)
    ops = [dist.P2POp(dist.irecv, came, left), dist.P2POp(dist.isend, values(100), right)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return came


@feature
def coalescing() -> Any:
    tensors = [values(5), values(7)]
    with c10d._coalescing_manager(async_ops=True) as works:
        for tensor in tensors:
            dist.all_reduce(tensor)
    works.wait()
    return tensors


@feature
def works() -> Any:
    """Everything that a handle can be asked."""
    tensor = values(10)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    total = work.get_future().then(lambda future: future.value()[0].sum()).wait()
    assert all((work.wait(), work.is_completed(), work.is_success(), work.exception() is None))
    return [total, tensor, work.get_future().done()]


@feature
def gradients_through_collectives() -> Any:
    leaf = values(4).requires_grad_()
    parts = differentiable.all_gather(leaf)
    whole = differentiable.all_reduce(torch.stack(list(parts)).sum(0) * (rank + 1))
    told = differentiable.broadcast(whole, 0)
    exchanged = torch.stack(list(differentiable.all_to_all([torch.zeros(4)] * size, [told] * size)))
    exchanged.square().sum().backward()  # type: ignore[no-untyped-call]
    return [exchanged, leaf.grad]


# -- groups --------------------------------------------------------------------------------------------------------


@feature
def subgroups() -> Any:
    mine, _ = dist.new_subgroups(size)  # type: ignore[no-untyped-call]
    alone, _ = dist.new_subgroups_by_enumeration([[peer] for peer in range(size)])  # type: ignore[no-untyped-call]
    tensors = [values(3), values(3)]
    dist.all_reduce(tensors[0], group=mine)
    dist.all_reduce(tensors[1], group=alone)
    return tensors


@feature
def mesh() -> Any:
    flat = init_device_mesh("cpu", (size,), mesh_dim_names=("all",))
    square = init_device_mesh("cpu", (1, size), mesh_dim_names=("outer", "inner"))
    tensor = values(4)
    dist.all_reduce(tensor, group=square.get_group("inner"))
    dist.all_reduce(tensor, group=square.get_group("outer"))
    return [flat.get_local_rank(), square["inner"].size(), square.get_coordinate(), tensor]


@feature
def barriers() -> Any:
    dist.barrier()
    dist.barrier(timeout=timedelta(seconds=50))
    work = dist.barrier(async_op=True)
    assert work is not None
    return work.wait()


@feature
def monitored_barriers() -> Any:
    return [
        dist.monitored_barrier(),
        dist.monitored_barrier(timeout=timedelta(seconds=50), wait_all_ranks=True),
        dist.monitored_barrier(dist.new_group([0, 1]), timedelta(seconds=50)),
    ]


# -- training ------------------------------------------------------------------------------------------------------


@feature
def sampler() -> Any:
    return list(DistributedSampler(range(11), shuffle=True, seed=1))  # type: ignore[arg-type]


@feature
def replicated() -> Any:
    model = new_net()
    replicate(model)
    return trained(model)


@feature
def averaged() -> Any:
    model = new_net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for value in model.parameters():
        value.grad = torch.zeros_like(value)  # others are left out
    PeriodicModelAverager(period=1).average_parameters(list(model.parameters()))
    return parameters(model)


@feature
def zero_redundancy() -> Any:
    model = DDP(new_net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    kept = optimizer.state_dict()["state"] if rank == 0 else {}
    return [parameters(model), [kept[key]["exp_avg"] for key in sorted(kept)]]


@feature
def joining() -> Any:
    model = DDP(new_net())
    with Join([model]):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=1 + rank)
    return parameters(model)


@feature
def fsdp1() -> Any:
    model = FullyShardedDataParallel(new_net(), device_id=torch.device("cpu"), use_orig_params=True)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with FullyShardedDataParallel.summon_full_params(model):
        return [value.detach().clone() for value in model.parameters()]


@feature
def fsdp2() -> Any:
    model = new_net()
    fully_shard(model)
    return trained(model)


@feature
def pipeline() -> Any:
    torch.manual_seed(0)
    parts = [nn.Linear(6, 6) for _ in range(size)]
    stage = PipelineStage(parts[rank], rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    inputs, target = values(4, 6, seed=0), values(4, 6, seed=1)
    losses: list[Tensor] = []
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=target, losses=losses)
    return [losses, [value.grad for value in parts[rank].parameters()]]


@feature
def sharded_tensors() -> Any:
    spec = torch.distributed._shard.sharding_spec.ChunkShardingSpec(
        0,
        [f"rank:{peer}/cpu" for peer in range(size)],
    )
    made = sharded_tensor.full(spec, (3 * size, 2), 2.5)
    whole = torch.zeros(3 * size, 2) if rank == 0 else None
    made.gather(0, whole)
    return whole


# -- checkpoints ---------------------------------------------------------------------------------------------------


def sharded() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = new_net()
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def resumed(path: Path) -> list[Tensor]:
    """A new model and a new optimizer go on from what was saved."""
    model, optimizer = sharded()
    for value in model.parameters():
        nn.init.zeros_(value)
    state, optimizer_state = get_state_dict(model, optimizer)
    loaded: dict[str, Any] = {"model": state, "optimizer": optimizer_state}
    state_dict_loader.load(loaded, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    train(model, optimizer)
    return parameters(model)


def saved_state() -> dict[str, Any]:
    model, optimizer = sharded()
    train(model, optimizer)
    state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": state, "optimizer": optimizer_state}


@feature
def checkpoint() -> Any:
    state_dict_saver.save(saved_state(), checkpoint_id=folder / "plain")
    return resumed(folder / "plain")


@feature
def async_checkpoint() -> Any:
    pending: Any = state_dict_saver.async_save(saved_state(), checkpoint_id=folder / "async")
    pending.result()
    return resumed(folder / "async")


@feature
def full_checkpoint() -> Any:
    """Rank 0 has the whole state, and all get their shards of it."""
    model, optimizer = sharded()
    train(model, optimizer)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    other, _ = sharded()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, whole if rank == 0 else {}, options=options)
    return parameters(other)


# -- what it prints ------------------------------------------------------------------------------------------------


def digest(result: Any) -> str:
    """The same for results that agree to five digits."""
    if isinstance(result, Tensor):
        result = [[round(float(value), 5) + 0.0 for value in result.detach().flatten()], list(result.shape)]
    if isinstance(result, list | tuple):
        return hashlib.sha256("".join(map(digest, result)).encode()).hexdigest()[:16]
    return hashlib.sha256(pickle.dumps(result)).hexdigest()[:16]


def digest_or_error(case: Callable[[], Any]) -> str:
    try:
        return digest(case())
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error)!r}"


print(f"group {dist.group.WORLD.name()} as {dist.get_backend()}", flush=True)  # type: ignore[union-attr]
for name, case in FEATURES.items():
    print(f"feature {name} {digest_or_error(case)}", flush=True)
    dist.barrier()
dist.destroy_process_group()
