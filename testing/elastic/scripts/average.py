"""An exponential moving average of the weights, updated after each step."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randn(96, 4), torch.randn(96, 1)), batch=16, micro=4)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
model = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
run.register(net=net, optimizer=optimizer, ema=model)
for _ in run.epochs(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        model.update_parameters(net)
assert model.n_averaged == run.committed
