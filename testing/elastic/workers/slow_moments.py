"""A training run with long moments in its loop: a compiler, a validation on one worker, a wait that all have."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.utils.data import TensorDataset
from uncompiled import without_compiler  # type: ignore[import-not-found]

from weft import elastic

LONG_S = 2.0  # four times as long as the run's --detect-within
torch.set_num_threads(1)
without_compiler()


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


run = elastic.join()
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = run.loader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch=16, micro=4)
run.register(model=model, optimizer=optimizer)
turns = 0
for _ in run.epochs(2):
    for x, y in loader:
        turns += 1
        if turns == 2:  # a compiled model may be compiled again for another shape, in the first step too
            burn(LONG_S)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if run.applied and run.committed == 3 and run.rank == 0:  # a validation; the others wait
            burn(LONG_S)
        if run.applied and run.committed == 5:  # all wait for something slow
            time.sleep(LONG_S)
print(f"committed {run.committed}", flush=True)
