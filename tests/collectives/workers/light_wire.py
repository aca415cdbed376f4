"""Sums between hosts on a light wire: nearly right, the same bits everywhere, and right over time."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import weft

wire, tolerance = sys.argv[1], float(sys.argv[2])
world = weft.init(wire=wire if "init" in sys.argv else None, timeout_s=60)
assert world.backend == "weft"
COUNT = 700_001


def values_of(rank: int) -> torch.Tensor:
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(rank))


exact = torch.stack([values_of(rank) for rank in range(weft.size())]).sum(0)
bucket, over_time = torch.empty(COUNT), torch.zeros(COUNT)
for _ in range(4):
    bucket.copy_(values_of(weft.rank()))
    dist.all_reduce(bucket)
    over_time += bucket
    error = ((bucket - exact).abs().max() / exact.abs().max()).item()
    assert 1e-4 < error < tolerance, error  # light, and not too light
    first = bucket.clone()
    dist.broadcast(first, 0)
    assert torch.equal(first, bucket)
if wire == "int8":
    drift = ((over_time - 4 * exact).abs().max() / exact.abs().max()).item()
    assert drift < 1.5 * tolerance, drift

small = torch.full((100,), 1 / 3)
dist.all_reduce(small)
assert torch.allclose(small, torch.full((100,), weft.size() / 3), rtol=1e-6)  # too small for it
weft.shutdown()
print(f"off by {error:.5f}, as it should be\n", end="", flush=True)
