"""A script that just ends, as many do: nothing is destroyed, and an operation of rank 0 is still under way."""

from __future__ import annotations

import torch
import torch.distributed as dist

import weft

weft.init()
other = dist.new_group(backend="gloo")
values = torch.ones(10)
dist.all_reduce(values)
dist.all_reduce(values, group=other)
if weft.rank() == 0:
    dist.all_reduce(values, async_op=True)
