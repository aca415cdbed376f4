"""A small training run whose result depends on every sample, every random number and every step."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

from weft import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--length", type=int, default=100)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--micro", type=int, default=4)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--reproducible", action="store_true")
parser.add_argument("--hurry", type=Path, help="no pause once this file is there")
parser.add_argument("--slow", default="", help="NAME=SECONDS: workers whose names begin so take that much longer")
parser.add_argument("--out", type=Path)
options = parser.parse_args()
slow_name, _, slow_s = options.slow.partition("=")
torch.set_num_threads(1)


class Points(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return options.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(8, generator=generator, dtype=torch.float64)
        return x, x.sum().sin()


run = elastic.join(reproducible=options.reproducible)
torch.manual_seed(0 if "SAME" in os.environ else os.getpid())
model = nn.Sequential(
    nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)
).double()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = run.loader(Points(), batch=options.batch, micro=options.micro, num_workers=options.workers)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=options.epochs * len(loader))
run.register(model=model, optimizer=optimizer, schedule=schedule)
for _ in run.epochs(options.epochs):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if options.pause and not (options.hurry and options.hurry.exists()):
            time.sleep(options.pause)
        if slow_name and run.name.startswith(slow_name):
            time.sleep(float(slow_s))
        optimizer.step()
        schedule.step()
state = model.state_dict()
digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values())).hexdigest()[:12]
print(
    json.dumps({"rank": run.rank, "size": run.size, "committed": run.committed, "digest": digest}), flush=True
)
if options.out is not None:
    torch.save(state, options.out / f"{run.name.replace('/', '-')}.pt")
