"""The time and the state of an optimizer's step, without a step of the model's own parameters."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

SAMPLE_BYTES = 64 << 20  # of parameters that are copied to be timed; the time of all is in proportion
ROUNDS = 3
PRIVATE = ("decoupled_weight_decay",)  # in the groups of some optimizers, and no argument of theirs


def arguments_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a group of parameters was made with, but the parameters."""
    names = {"params", "initial_lr", *PRIVATE}
    return {name: value for name, value in group.items() if name not in names}


def optimizer_seconds(optimizer: torch.optim.Optimizer, synchronise: Callable[[], None]) -> float:
    """Return what a step of such an optimizer takes, timed on copies of some parameters; 0 if none can be made."""
    every = [(one, group) for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    copies, total = [], sum(one.nbytes for one, _ in every)
    taken = 0
    for one, group in sorted(every, key=lambda each: -each[0].nbytes):
        if taken and taken + one.nbytes > SAMPLE_BYTES:
            continue
        copy = nn.Parameter(one.detach().clone())
        copy.grad = torch.zeros_like(copy)
        copies.append({"params": [copy], **arguments_of(group)})
        taken += one.nbytes
    try:
        like: Any = type(optimizer)
        made = like(copies)
        made.step()  # makes its state
    except Exception:  # an optimizer with other arguments, or one that must have a closure
        return 0.0
    times = []
    for _ in range(ROUNDS):
        synchronise()
        began = time.perf_counter()
        made.step()
        synchronise()
        times.append(time.perf_counter() - began)
    return float(median(times) * total / taken)
