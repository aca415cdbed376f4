"""The time and the state of an optimizer's step, without a step of the model's own parameters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
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


def follow(made: torch.optim.Optimizer, original: torch.optim.Optimizer) -> None:
    """Let an optimizer take over what a scheduler changes of the one that it was made from."""

    def settings() -> list[dict[str, Any]]:
        return [arguments_of(group) for group in original.param_groups]

    seen = settings()

    def take_over(*_: Any) -> None:
        nonlocal seen
        now = settings()
        for group, before, after in zip(made.param_groups, seen, now, strict=False):
            group.update({name: value for name, value in after.items() if before.get(name) != value})
        seen = now
        counted: Any = original
        counted._opt_called = True  # which schedulers look at, to warn of steps in the wrong order

    made.register_step_pre_hook(take_over)


@dataclass(frozen=True)
class OptimizerSample:
    """An optimizer like another one, over copies of some of its parameters."""

    optimizer: torch.optim.Optimizer
    share: float  # times as long as its step takes one of all parameters

    def step(self) -> None:
        self.optimizer.step()


def optimizer_sample(optimizer: torch.optim.Optimizer, *, tiny: bool = False) -> OptimizerSample | None:
    """Return such an optimizer, its state made; None if none can be. `tiny`: over one element of each parameter."""
    every = [(one, group) for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    copies, total = [], sum(one.nbytes for one, _ in every)
    taken = 0
    for one, group in sorted(every, key=lambda each: -each[0].nbytes):
        if taken and taken + one.nbytes > SAMPLE_BYTES and not tiny:
            continue
        values = one.detach()
        copy = nn.Parameter((values.flatten()[:1] if tiny else values).clone())
        copy.grad = torch.zeros_like(copy)
        copies.append({"params": [copy], **arguments_of(group)})
        taken += one.nbytes
    try:
        like: Any = type(optimizer)
        made = like(copies)
        made.step()  # makes its state
    except Exception:  # an optimizer with other arguments, or one that must have a closure
        return None
    return OptimizerSample(made, 1.0 if tiny else total / max(1, taken))


def optimizer_seconds(
    optimizer: torch.optim.Optimizer, synchronise: Callable[[], None]
) -> tuple[float, float]:
    """Return what a step of such an optimizer takes, and what of it is the same for tensors of any size.

    It is timed on copies of some parameters; 0 if none can be made.
    """
    return _timed(optimizer_sample(optimizer), synchronise), _timed(
        optimizer_sample(optimizer, tiny=True), synchronise
    )


def _timed(sample: OptimizerSample | None, synchronise: Callable[[], None]) -> float:
    if sample is None:
        return 0.0
    times = []
    for _ in range(ROUNDS):
        synchronise()
        began = time.perf_counter()
        sample.step()
        synchronise()
        times.append(time.perf_counter() - began)
    return float(median(times) * sample.share)
