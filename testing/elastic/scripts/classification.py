"""Classification with dropout, batch normalisation and a scheduler that steps once an epoch."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
images, labels = torch.randn(96, 3, 8, 8), torch.randint(0, 5, (96,))
loader = run.loader(TensorDataset(images, labels), batch=16)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 5)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
run.register(model=model, optimizer=optimizer, scheduler=scheduler)
for epoch in run.epochs(3):
    model.train()
    for x, y in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    scheduler.step()
    if run.rank == 0:
        print(f"epoch {epoch} loss {loss.item():.3f} lr {scheduler.get_last_lr()[0]:.4f}")
assert abs(scheduler.get_last_lr()[0]) < 1e-9
