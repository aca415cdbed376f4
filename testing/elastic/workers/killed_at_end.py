"""A script whose second worker is killed after its last step: before its script ends, or while its interpreter does."""

from __future__ import annotations

import atexit
import os
import signal
import sys

import torch

from weft import elastic


def die() -> None:
    if run.name.startswith("localhost/1"):
        os.kill(os.getpid(), signal.SIGKILL)


# Registered before `join`, it is called after all that the run and the script have registered.
atexit.register(lambda: die() if sys.argv[1] == "exit" else None)
run = elastic.join()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = run.loader(torch.ones(8, 1), batch=4)
run.register(model=model, optimizer=optimizer)
for _ in run.epochs(2):
    for rows in loader:
        model(rows).sum().backward()
        optimizer.step()
if sys.argv[1] == "script":
    die()
