"""Say whether the chosen wire changes what an all-reduce across hosts gives: a value that bfloat16 cannot hold."""

from __future__ import annotations

import torch
import torch.distributed as dist

dist.init_process_group("weft")
value = 1 + 2**-12
tensor = torch.full((1 << 20,), value)
dist.all_reduce(tensor)
if dist.get_rank() == 0:
    same = bool((tensor == dist.get_world_size() * value).all())
    print("kept" if same else "rounded")
dist.destroy_process_group()
