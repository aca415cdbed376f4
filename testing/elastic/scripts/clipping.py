"""Gradient clipping, and a step that is left out when the loss is not a number."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
x = torch.randn(96, 4)
x[5] = float("nan")
loader = run.loader(TensorDataset(x, torch.randn(96, 1)), batch=8)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
run.register(model=model, optimizer=optimizer)
skipped = 0
for _ in run.epochs(2):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        if not torch.isfinite(loss):
            skipped += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
assert all(parameter.isfinite().all() for parameter in model.parameters())
