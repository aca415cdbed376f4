"""Mode nccl among two workers that share one accelerator.

NCCL refuses that on one host; so each says that it is another host, and NCCL goes over sockets. What we call is the
same.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore

from weft.collectives.modes import nccl
from weft.collectives.modes.mode import even_bounds
from weft.collectives.reduction import Reduction

os.environ["NCCL_HOSTID"] = f"host-{os.environ['RANK']}"  # read when NCCL is first used
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(0)
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0)
group = nccl.connect(PrefixStore("nccl", store), rank, size, timedelta(seconds=60))
mode = nccl.Nccl(group, rank, size, timeout_s=60)

for dtype in (torch.float32, torch.bfloat16, torch.int64):
    for count in (1, 1000, 1001, 1_000_000):
        values = torch.full((count,), rank + 1, dtype=dtype, device="cuda")
        mode.all_reduce(values, Reduction("SUM"))
        assert torch.equal(values, torch.full_like(values, sum(range(1, size + 1)))), (dtype, count)
        bounds = even_bounds(count, size)
        values = torch.arange(count, device="cuda").to(dtype)
        mode.reduce_scatter(values, bounds, Reduction("SUM"))
        mode.all_gather(values, bounds)
        assert torch.equal(values, torch.arange(count, device="cuda").to(dtype) * size), (dtype, count)
spread = torch.full((5,), rank, device="cuda")
mode.broadcast(spread, 1)
assert spread.tolist() == [1] * 5
mode.barrier()
print(f"rank {rank} agrees")
mode.close()
