"""Two workers on one accelerator: every type, operator and shape against Gloo, and DDP to the same weights.

With the argument `nccl` it goes by NCCL, although that refuses two ranks on one accelerator: each says that it is
another host, and we are told that they have one each.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import weft
from weft.collectives.groups import accelerators, device

if sys.argv[1:] == ["nccl"]:
    os.environ["NCCL_HOSTID"] = f"host-{os.environ['RANK']}"  # read when NCCL is first used
    accelerators.nccl_groups = lambda layout, *_: layout.hosts
device.CHUNK_BYTES = 1 << 20  # so that tensors of a few MiB go in chunks
weft.init(backend="weft")
gloo: Any = dist.new_group(backend="gloo")
rank, size = weft.rank(), weft.size()
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def given(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 5, (count,), generator=generator).to(dtype)


def same(what: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    if not torch.equal(ours.cpu(), theirs.cpu()):
        raise AssertionError(f"{what} must be {theirs}, got {ours}")


for dtype in TYPES:
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        for count in (0, 1, 1001, 1_500_003):
            ours = given(count, dtype, rank).cuda()
            theirs = given(count, dtype, rank)
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=gloo)
            same(f"all_reduce {dtype} {op} {count}", ours, theirs)
ours = given(3000, torch.float32, rank).cuda().view(50, 60)
theirs = ours.cpu()
dist.all_reduce(ours.t()[3:50:3])
part = theirs.t()[3:50:3].contiguous()
dist.all_reduce(part, group=gloo)
theirs.t()[3:50:3] = part
same("a view", ours, theirs)

parts = [torch.empty(100, device="cuda") for _ in range(size)]
dist.all_gather(parts, torch.full((100,), float(rank), device="cuda"))
same("all_gather", torch.stack(parts), torch.arange(float(size))[:, None].expand(size, 100))
spread = torch.full((1_000_000,), float(rank), device="cuda")
dist.broadcast(spread, 1)
same("broadcast", spread, torch.ones(1_000_000))
piece = torch.empty(1000, device="cuda")
dist.reduce_scatter_tensor(piece, torch.arange(1000.0 * size, device="cuda"))
same("reduce_scatter", piece, torch.arange(1000.0 * size)[rank * 1000 :][:1000] * size)


def trained(group: Any) -> list[torch.Tensor]:
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).cuda()
    model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        torch.manual_seed(step * size + rank)
        loss = torch.nn.functional.cross_entropy(
            model(torch.randn(16, 512, device="cuda")), torch.randint(0, 10, (16,), device="cuda")
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return [parameter.detach().clone() for parameter in net.parameters()]


for ours, theirs in zip(trained(None), trained(gloo), strict=True):
    same("DDP", ours, theirs)
print(f"rank {rank} agrees")
weft.shutdown()
