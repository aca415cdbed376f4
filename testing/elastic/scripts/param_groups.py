"""Several parameter groups: no weight decay for biases and norms, a lower rate for the embedding; its rows are few."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(tokens).mean(1)))


run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randint(0, 20, (96, 5)), torch.randint(0, 3, (96,))), batch=16)
model = Tagger().to(run.device)
decay = [p for n, p in model.named_parameters() if p.ndim > 1 and "embedding" not in n]
plain = [p for n, p in model.named_parameters() if p.ndim == 1]
optimizer = torch.optim.AdamW(
    [
        {"params": decay, "weight_decay": 0.1},
        {"params": plain, "weight_decay": 0.0},
        {"params": model.embedding.parameters(), "lr": 1e-4},
    ],
    lr=1e-2,
)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[1e-2, 1e-2, 1e-3], total_steps=18)
run.register(model=model, optimizer=optimizer, scheduler=scheduler)
for _ in run.epochs(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
