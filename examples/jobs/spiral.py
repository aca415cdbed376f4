"""Trains a small network to tell two spirals apart, on any number of workers; a jobs service shows its curves.

weft submit --follow examples/jobs/spiral.yaml      as a job
weft run -n 2 examples/jobs/spiral.py               without a service
"""

import argparse
import math
import os
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

import weft

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--lr", type=float, default=0.02)
options = parser.parse_args()

world = weft.init()
torch.manual_seed(0)
turn = torch.rand(600) * 3 * math.pi
side = torch.randint(0, 2, (600,))
radius = turn / 10 * (1 - 2 * side)
points = torch.stack([radius * turn.cos(), radius * turn.sin()], 1) + 0.01 * torch.randn(600, 2)
mine = slice(world.rank, None, world.size)  # each worker has its share of the points
network = torch.nn.Sequential(
    torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
)
model = DistributedDataParallel(network.to(world.device))
optimizer = torch.optim.Adam(model.parameters(), options.lr)
for epoch in range(options.epochs):
    optimizer.zero_grad()
    answers = model(points[mine].to(world.device))
    loss = torch.nn.functional.cross_entropy(answers, side[mine].to(world.device))
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    right = (answers.argmax(1).cpu() == side[mine]).float().mean()
    weft.log(loss=loss, accuracy=right, step=epoch)
    weft.report(progress=(epoch + 1) / options.epochs)
    if epoch % 50 == 49:
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {right.item():.0%}", flush=True)
if world.rank == 0:
    torch.save(network.state_dict(), Path(os.environ.get("WEFT_OUTPUTS", ".")) / "spiral.pt")
weft.shutdown()
