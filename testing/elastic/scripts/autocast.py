"""Mixed precision: autocast to bfloat16 with a gradient scaler that is unscaled before clipping."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randn(96, 4), torch.randn(96, 1)), batch=16)
model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 1)).to(run.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler(run.device.type, init_scale=128.0)
run.register(model=model, optimizer=optimizer, scaler=scaler)
for _ in run.epochs(2):
    for x, y in loader:
        x, y = x.to(run.device), y.to(run.device)
        with torch.autocast(run.device.type, dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
