"""Validation after each epoch with a metric of its own, and the best model kept."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from weft import elastic


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = total = 0
    with torch.inference_mode():
        for x, y in loader:
            right += int((model(x).argmax(1) == y).sum())
            total += len(y)
    model.train()
    return right / total


run = elastic.join()
torch.manual_seed(0)
data = TensorDataset(torch.randn(128, 6), torch.randint(0, 3, (128,)))
train, test = random_split(data, [96, 32], generator=torch.Generator().manual_seed(1))
loader = run.loader(train, batch=16, drop_last=True)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters())
run.register(model=model, optimizer=optimizer)
best, weights = -1.0, None
for _ in run.epochs(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    accuracy = evaluate(model, DataLoader(test, batch_size=16))
    if accuracy > best:
        best, weights = accuracy, copy.deepcopy(model.state_dict())
model.load_state_dict(weights)
