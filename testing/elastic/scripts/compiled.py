"""A model that is compiled, for training and for evaluation inside the loop."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), batch=16)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.register(model=model, optimizer=optimizer)
for _ in run.epochs(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(compiled(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            compiled(x[:1])
