"""Those who train on top of torch.distributed: each must come to the same parameters as under Gloo."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.collectives.workers.contract import Contract, Group
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817

contract = Contract()
rank, size = contract.rank, contract.size
STEPS = 3


class Net(nn.Module):
    """Small, with a buffer, and with a branch that some steps do not take."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16, bias=False)  # a bias before the norm would learn from noise
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, 4)
        self.spare = nn.Linear(4, 4)
        self.skips = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.second(torch.relu(self.norm(self.first(inputs))))
        return hidden if self.skips else self.spare(hidden)  # type: ignore[no-any-return]


def new_net() -> Net:
    torch.manual_seed(0)
    return Net()


def train(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, steps: int = STEPS) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        inputs = contract.values(4, 6, rank=10 * rank + step)
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def parameters(model: nn.Module) -> list[torch.Tensor]:
    whole = [value.full_tensor() if isinstance(value, DTensor) else value for value in model.parameters()]
    return [value.detach().clone() for value in whole]


# -- DistributedDataParallel ---------------------------------------------------------------------------------------


def ddp(
    group: Group, prepare: Callable[[Any, Group], None] = lambda *_: None, **options: Any
) -> list[torch.Tensor]:
    # Small buckets: several are under way at once.
    model = DDP(new_net(), process_group=group, **{"bucket_cap_mb": 0.0002, **options})
    prepare(model, group)
    train(model)
    return parameters(model)


def unused(model: Any, _: Group) -> None:
    model.module.skips = True


def fp16(model: Any, group: Group) -> None:
    model.register_comm_hook(group, default_hooks.fp16_compress_hook)


def power_sgd(model: Any, group: Group) -> None:
    """Its callbacks call collectives: with several buckets their order would be a matter of luck, also under Gloo."""
    state = powerSGD_hook.PowerSGDState(
        group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def joined(group: Group) -> list[torch.Tensor]:
    """Ranks with different numbers of batches."""
    model = DDP(new_net(), process_group=group)
    with Join([model]):
        train(model, steps=2 + rank)
    return parameters(model)


contract.check("DDP", ddp, same=True)
contract.check("DDP find_unused_parameters", lambda g: ddp(g, unused, find_unused_parameters=True), same=True)
contract.check("DDP static_graph", lambda g: ddp(g, static_graph=True), same=True)
contract.check("DDP gradient_as_bucket_view", lambda g: ddp(g, gradient_as_bucket_view=True), same=True)
contract.check("DDP fp16 hook", lambda g: ddp(g, fp16), same=True, within=1e-3)
contract.check("DDP PowerSGD hook", lambda g: ddp(g, power_sgd, bucket_cap_mb=25), same=True, within=1e-3)
contract.check("DDP Join", joined, same=True)


def no_sync(group: Group) -> list[torch.Tensor]:
    model = DDP(new_net(), process_group=group)
    with model.no_sync():
        model(contract.values(4, 6)).square().mean().backward()
    train(model)
    return parameters(model)


contract.check("DDP no_sync", no_sync, same=True)


def sparse_embedding(group: Group) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = DDP(nn.EmbeddingBag(10, 3, sparse=True, mode="sum"), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.tensor([[rank, 3, 5]])).sum().backward()
    optimizer.step()
    return parameters(model)


contract.check("DDP with sparse gradients", sparse_embedding, same=True)


def zero(group: Group) -> list[torch.Tensor]:
    model = DDP(new_net(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
    train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    return parameters(model)


contract.check("ZeroRedundancyOptimizer", zero, same=True)

# -- sharded -------------------------------------------------------------------------------------------------------


def mesh_of(group: Group) -> DeviceMesh:
    return DeviceMesh.from_group(group, "cpu", mesh_dim_names=("shard",))


def fsdp(group: Group, **options: Any) -> list[torch.Tensor]:
    model = new_net()
    for layer in (model.first, model.second):
        fully_shard(layer, mesh=mesh_of(group), **options)
    fully_shard(model, mesh=mesh_of(group))
    train(model)
    return parameters(model)


contract.check("FSDP2", fsdp, same=True)
HALF = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, output_dtype=torch.float32
)
contract.check("FSDP2 in bfloat16", lambda group: fsdp(group, mp_policy=HALF), same=True, within=1e-2)

if size == 4:
    pairs, stripes = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    made = {
        backend: [
            next(group for group, ranks in zip(groups, sets, strict=True) if rank in ranks)
            for sets in (stripes, pairs)
            for groups in [[dist.new_group(ranks, backend=backend) for ranks in sets]]
        ]
        for backend in ("weft", "gloo")
    }

    def hsdp(group: Group) -> list[torch.Tensor]:
        """Shards within a pair, replicas across pairs."""
        groups = made["weft" if group is contract.weft else "gloo"]
        mesh = DeviceMesh.from_group(groups, "cpu", [[0, 1], [2, 3]], mesh_dim_names=("replicate", "shard"))
        model = new_net()
        fully_shard(model.first, mesh=mesh)
        fully_shard(model, mesh=mesh)
        train(model)
        return parameters(model)

    contract.check("HSDP", hsdp, same=True)


def tensor_parallel(group: Group) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8 * size), nn.ReLU(), nn.Linear(8 * size, 4))
    parallelize_module(model, mesh_of(group), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(contract.values(4, 6, rank=0)).square().mean().backward()
    optimizer.step()
    return parameters(model)


def dtensor(group: Group) -> list[torch.Tensor]:
    mesh = mesh_of(group)
    whole = contract.values(5, 4 * size, rank=0)
    rows = distribute_tensor(whole, mesh, [Shard(0)])  # uneven
    columns = rows.redistribute(mesh, [Shard(1)])
    product: Any = columns @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    total: Any = rows.sum()
    return [
        columns.to_local(),
        product.redistribute(mesh, [Replicate()]).to_local(),
        rows.full_tensor(),
        total.full_tensor(),
    ]


contract.check("DTensor", dtensor)
contract.check("tensor parallel", tensor_parallel, same=True)

# -- the rest ------------------------------------------------------------------------------------------------------


def checkpoint(group: Group) -> list[torch.Tensor]:
    """Saved by one model, loaded by another."""
    told: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(told, 0, group=group)
    model, other = new_net(), Net()
    for module in (model, other):
        fully_shard(module, mesh=mesh_of(group))
    train(model)
    save(get_model_state_dict(model), checkpoint_id=told[0], process_group=group)
    state = get_model_state_dict(other)
    load(state, checkpoint_id=told[0], process_group=group)
    set_model_state_dict(other, state)
    for ours, loaded in zip(parameters(model), parameters(other), strict=True):
        assert torch.equal(ours, loaded)
    assert rank or any(Path(told[0]).iterdir())
    return parameters(other)


contract.check("distributed checkpoint", checkpoint, same=True)
contract.refuses(
    "SyncBatchNorm",  # torch's own has no form for the CPU
    lambda group: nn.SyncBatchNorm(4, process_group=group)(contract.values(3, 4)),
    "SyncBatchNorm expected input tensor to be on",
)
contract.end()
