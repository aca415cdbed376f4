"""Progress bars around the epochs and around the loader, with a running loss."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset
from tqdm import tqdm

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randn(96, 4), torch.randn(96, 1)), batch=16)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.register(model=model, optimizer=optimizer)
for epoch in tqdm(run.epochs(4), total=4, disable=run.rank != 0):
    bar = tqdm(loader, total=len(loader), leave=False, disable=run.rank != 0)
    total = 0.0
    for i, (x, y) in enumerate(bar):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        bar.set_postfix(loss=f"{total / (i + 1):.3f}")
    if epoch == 2:  # enough
        break
