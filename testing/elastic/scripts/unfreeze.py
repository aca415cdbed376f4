"""Fine-tuning: the body is frozen at first, and unfrozen with a lower rate in the second epoch."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randn(96, 4), torch.randn(96, 1)), batch=16)
body, head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 1)
model = nn.Sequential(body, head)
before = body[0].weight.detach().clone()
for parameter in body.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
optimizer.add_param_group({"params": body.parameters(), "lr": 0.01})
run.register(model=model, optimizer=optimizer)
for epoch in run.epochs(3):
    if epoch == 1:
        assert torch.equal(body[0].weight, before)
        for parameter in body.parameters():
            parameter.requires_grad = True
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
assert not torch.equal(body[0].weight, before)
