"""torch.distributed initialised and destroyed several times in one process, over one store."""

from __future__ import annotations

import torch
import torch.distributed as dist

for _ in range(15):
    dist.init_process_group("weft")
    tensor = torch.full((1000,), float(dist.get_rank()))
    dist.all_reduce(tensor)
    pair = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        dist.barrier(pair)
    size = dist.get_world_size()
    assert tensor.eq(size * (size - 1) / 2).all()
    dist.destroy_process_group()
