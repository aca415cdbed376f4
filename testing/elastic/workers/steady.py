"""A small training run that takes its time until it is told to hurry, and ends with the same bits whoever took part."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from uncompiled import without_compiler  # type: ignore[import-not-found]

from weft import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--pause", type=float, default=0.0, help="seconds for each micro-batch")
parser.add_argument("--hurry", type=Path, help="no pause once this file is there")
parser.add_argument(
    "--slow", default="=0", help="NAME=SECONDS: workers whose names begin so take that much longer"
)
parser.add_argument("--tell", action="store_true", help="print a line for each step that is applied")
parser.add_argument("--width", type=int, default=16, help="of the hidden layer: what is sent grows with it")
options = parser.parse_args()
slow_name, _, slow_s = options.slow.partition("=")
torch.set_num_threads(1)
without_compiler()
BATCH, STEPS_IN_EPOCH = 16, 10


class Points(Dataset[Any]):
    def __len__(self) -> int:
        return BATCH * STEPS_IN_EPOCH

    def __getitem__(self, index: int) -> Any:
        x = torch.randn(8, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
        return x, x.sum().sin()


def take_time() -> None:
    if not (options.hurry and options.hurry.exists()):
        time.sleep(options.pause)
    if slow_name and run.name.startswith(slow_name):
        time.sleep(float(slow_s))


run = elastic.join(reproducible=True)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(8, options.width), nn.Tanh(), nn.Dropout(0.1), nn.Linear(options.width, 1)
).double()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = run.loader(Points(), batch=BATCH, micro=4)
run.register(model=model, optimizer=optimizer)
for _ in run.epochs(options.steps // STEPS_IN_EPOCH):
    for x, y in loader:
        take_time()
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if options.tell and run.applied:
            print(f"{run.name} step {run.committed}", flush=True)
values = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
digest = hashlib.sha256(values).hexdigest()[:12]
print(json.dumps({"worker": run.name, "committed": run.committed, "digest": digest}), flush=True)
