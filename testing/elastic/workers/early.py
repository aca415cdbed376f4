"""A training run that leaves its loop early, on all workers or on one of them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset
from uncompiled import without_compiler  # type: ignore[import-not-found]

from weft import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--how", choices=["break", "return", "exit"], required=True)
parser.add_argument("--only", default="", help="the worker that leaves; by default all do")
options = parser.parse_args()
torch.set_num_threads(1)
without_compiler()


def train(run: Any, loader: Any, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in run.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if run.committed < 5 or options.only not in ("", run.name):
                continue
            if options.how == "exit":
                sys.exit(0)
            if options.how == "return":
                return
            break
        if run.committed >= 5 and options.only in ("", run.name):
            break


run = elastic.join()
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = run.loader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch=16)
run.register(model=model, optimizer=optimizer)
train(run, loader, model, optimizer)
print(f"left after {run.committed}", flush=True)
