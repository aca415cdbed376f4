"""Elastic training in Horovod's idiom that never ends: a step of so many milliseconds, and a commit after each.

weft run --elastic 2:3 benchmarks/horovod_scripts/elastic.py STEP_MS
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

import weft.compat.horovod.torch as hvd

hvd.init()
model = nn.Linear(1000, 1000)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.001), model.named_parameters())


@hvd.elastic.run
def train(state: Any) -> None:
    while True:
        time.sleep(float(sys.argv[1]) / 1000)
        optimizer.zero_grad()
        model(torch.ones(4, 1000)).square().mean().backward()
        optimizer.step()
        state.step += 1
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, step=0))
