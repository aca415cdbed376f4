"""Misuse that comes from habits of other launchers, told in one sentence: DDP, batch sizes, samplers, optimizers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from weft.errors import UsageError

NO_WRAPPER = "a model of an elastic run must not be wrapped, as the run reduces gradients itself"
NO_GROUP = "Default process group has not been initialized"  # torch's words


def check_registered(objects: Mapping[str, Any]) -> None:
    """Refuse to register no model, or one that is wrapped."""
    for name, value in objects.items():
        if isinstance(value, DistributedDataParallel | DataParallel):
            raise UsageError(f"{NO_WRAPPER}, got {name} in {type(value).__name__}; register {name}.module")
    if not any(isinstance(value, torch.nn.Module) for value in objects.values()):
        raise UsageError("a model must be registered, got none; call run.register(model=model, ...)")


def check_loader(dataset: Any, batch: int | None, options: Mapping[str, Any]) -> int:
    """Refuse what a DataLoader takes and a loader of the run decides itself; return the batch."""
    if isinstance(dataset, DataLoader):
        raise UsageError("run.loader must be given a data set, got a DataLoader; give it loader.dataset")
    if "batch_size" in options:
        size = options["batch_size"]
        raise UsageError(
            f"run.loader must be given batch=, the samples of a step over all workers, got batch_size={size}; write "
            f"batch={size}, or the product with the number of workers if each is to have {size}"
        )
    for name in ("sampler", "batch_sampler"):
        if name in options:
            raise UsageError(f"run.loader deals the samples itself, got {name}=; leave it out")
    if batch is None:
        raise UsageError("run.loader must be given batch=, the samples of a step over all workers, got none")
    return batch


def watch_optimizers(objects: Mapping[str, Any]) -> None:
    """Have an optimizer that steps a registered model refused, if no optimizer is registered."""
    if any(isinstance(value, torch.optim.Optimizer) for value in objects.values()):
        return
    modules = [value for value in objects.values() if isinstance(value, torch.nn.Module)]
    ours = {id(parameter) for module in modules for parameter in module.parameters()}

    def check(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"]):
            raise UsageError(
                f"an optimizer must be registered with its model, got {type(optimizer).__name__}, which is not; call "
                "run.register(model=model, optimizer=optimizer)"
            )

    register_optimizer_step_pre_hook(check)


@dataclass
class Uncaught:
    """A note of whether an exception has ended the script."""

    happened: bool = False


def watch_exceptions() -> Uncaught:
    """Note an exception that ends the script; one that wraps its model in DDP is told why that fails."""
    before, uncaught = sys.excepthook, Uncaught()

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        uncaught.happened = True
        before(kind, error, trace)
        if isinstance(error, ValueError) and NO_GROUP in str(error):
            print(f"weft: {NO_WRAPPER}; leave DistributedDataParallel out", file=sys.stderr, flush=True)

    sys.excepthook = note
    return uncaught
