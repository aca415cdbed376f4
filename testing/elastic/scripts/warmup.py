"""Warm-up of the learning rate by a LambdaLR that steps with every batch."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic

WARMUP, TOTAL = 4, 18
run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randn(96, 4), torch.randn(96, 1)), batch=16, micro=2)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min(1.0, (step + 1) / WARMUP) * max(0.0, 1 - step / TOTAL)
)
run.register(model=model, optimizer=optimizer, scheduler=scheduler)
for _ in run.epochs(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        scheduler.step()
assert scheduler.last_epoch == run.committed == TOTAL
assert optimizer.param_groups[0]["lr"] == 0.0
