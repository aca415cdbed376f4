"""Under mpirun: a group of a part of the world, before MPI is up; then one of the whole world, which starts it."""

from __future__ import annotations

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
part = dist.new_group([0, 1], backend="weft")
said = ""
if dist.get_rank() < 2:
    dist.all_reduce(values := torch.ones(9), group=part)
    assert bool((values == 2).all())
    said = f"{type(part._hierarchy.local).__name__} "
whole = dist.new_group(backend="weft")
dist.all_reduce(values := torch.ones(9), group=whole)
assert bool((values == 3).all())
print(f"{said}then {type(whole._hierarchy.local).__name__}")
dist.destroy_process_group()
