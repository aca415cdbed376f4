"""A data set that computes its samples, read by worker processes of the loader, with random augmentation."""

from __future__ import annotations

import random

import torch
from torch import nn
from torch.utils.data import Dataset

from weft import elastic


class Waves(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        phase = torch.tensor(index / 10)
        noise = random.random() * torch.randn(8)
        return torch.sin(phase + torch.arange(8) / 4) + 0.1 * noise, phase.sin().view(1)


if __name__ == "__main__":
    run = elastic.join()
    torch.manual_seed(0)
    loader = run.loader(Waves(), batch=16, num_workers=2, persistent_workers=True, prefetch_factor=2)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run.register(model=model, optimizer=optimizer)
    for _ in run.epochs(2):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
