"""Nine all_reduces, and no optimizer."""

from __future__ import annotations

import torch
import torch.distributed as dist

import weft

torch.set_num_threads(1)
weft.init("weft")
for _ in range(9):
    dist.all_reduce(torch.ones(1000))
weft.shutdown()
