"""A small training that ends in the way the argument says: well, raises, killed, told (SIGTERM), or stuck in Gloo.

`hidden` is told while something else stands for the error stream, as when torch shows an exception.
"""

from __future__ import annotations

import io
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817

import weft

how = sys.argv[1]
torch.set_num_threads(1)
weft.init("weft", timeout_s=30)
last = weft.rank() == weft.size() - 1
model = DDP(nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300)), bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
other = torch.optim.SGD(model.parameters(), lr=0.01)  # of which no steps are counted
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(8, 300)).square().mean().backward()
    optimizer.step()
    other.step()
received = torch.zeros(5)
if weft.rank() == 0:
    dist.send(torch.ones(5), 1)
elif weft.rank() == 1:
    dist.recv(received, 0)
dist.barrier()
if how == "hidden":
    sys.stderr = io.StringIO()
match how:
    case "raises" if last:
        raise RuntimeError("no more data")
    case "killed" if last:
        os.kill(os.getpid(), signal.SIGKILL)
    case "told" | "hidden" if last:
        os.kill(os.getpid(), signal.SIGTERM)
    case "stuck" if last:
        signal.pause()  # until the launcher ends us, as the test asks it to
if how in ("raises", "killed", "told", "hidden", "stuck"):
    print("waiting", flush=True)
    dist.recv(received, weft.size() - 1)  # never comes; in Gloo, where no Python handler runs
dist.barrier()
if how != "forgets":
    weft.shutdown()
