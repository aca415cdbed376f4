"""A budget under torch's own ways to train on several devices; one process is enough to shard and to gather."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from testing.families import GptBlock, Transformer
from tests.lms.stage import back, squared
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from weft import lms
from weft.errors import UsageError
from weft.lms.device.simulated import SimulatedTransfer

LIMIT = 3_500_000  # of 9 MB
FAST, SLOW = 1e12, 1e6  # links


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Transformer(4, lambda: GptBlock(32, 4), 32)


def local(tensor: Any) -> Tensor:
    result: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return result


@pytest.mark.parametrize("link", [FAST, SLOW])
@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_gradients_are_the_native_ones(model: nn.Module, way: str, link: float) -> None:
    x = torch.randn(16, 64, 32)
    sharded: Any = copy.deepcopy(model)
    back(squared(model, x))
    if way == "ddp":
        sharded = DistributedDataParallel(sharded)
    else:
        mesh = init_device_mesh("cpu", (1,))
        for block in sharded.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
    transfer = SimulatedTransfer(link=link)
    transfer.adopt(x, *(local(parameter) for parameter in sharded.parameters()))
    for _ in range(5):
        sharded.zero_grad(set_to_none=True)
        with lms.fit(LIMIT, transfer=transfer):
            back(squared(sharded, x))
        for parameter, expected in zip(sharded.parameters(), model.parameters(), strict=True):
            assert expected.grad is not None
            assert torch.equal(local(parameter.grad), expected.grad)
    assert lms.stats()["over"] == 0
    assert lms.plan().bytes_of("swap" if link == FAST else "recipe") > 0


def test_shared_parameters_are_not_paged(model: nn.Module) -> None:
    sharded, transfer = DistributedDataParallel(model), SimulatedTransfer()
    with pytest.raises(UsageError, match="DistributedDataParallel"):
        lms.wrap(sharded, limit="1MB", page="always", transfer=transfer)
    lms.wrap(sharded, limit="200KB", page="auto", transfer=transfer)
    assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
