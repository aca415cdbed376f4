"""Early stopping on the loss of a validation set, with patience."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
x, y = torch.randn(128, 4), torch.randn(128, 1)
loader = run.loader(TensorDataset(x[:96], y[:96]), batch=16)
validation = DataLoader(TensorDataset(x[96:], y[96:]), batch_size=32)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.2)
run.register(model=model, optimizer=optimizer)
best, patience, bad = float("inf"), 1, 0
for epoch in run.epochs(50):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        loss = sum(nn.functional.mse_loss(model(a), b).item() for a, b in validation)
    if loss < best:
        best, bad = loss, 0
    else:
        bad += 1
    if bad > patience:
        print(f"no better after epoch {epoch}")
        break
assert run.committed < 50 * 6
