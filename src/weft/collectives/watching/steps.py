"""Training steps, counted by the first optimizer that steps; in a program without one, an all_reduce of all ranks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

_LOOKS = 3  # for an optimizer that has not stepped yet


class StepCounter:
    """Counts steps, and tells after every N of them."""

    def __init__(self, every: int, tell: Callable[[int, int], None]) -> None:
        self._every, self._tell = every, tell
        self._count = self._told = 0
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._looks = 0
        self._hook = register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._optimizer is None:
            self._count = self._told = 0  # what was counted so far were no steps
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._count += 1
            self._tell_if_due()

    def before_all_reduce(self) -> None:
        """Count an all-reduce of all ranks as a step while no optimizer has stepped; what came before is complete."""
        if self._optimizer is None:
            self._tell_if_due()
            self._count += 1

    def _tell_if_due(self) -> None:
        if self._count - self._told < self._every:
            return
        if self._optimizer is None and self._looks < _LOOKS:
            self._looks += 1
            if _optimizer_exists():
                return  # its steps count, once it takes the first
        steps, self._told = self._count - self._told, self._count
        self._tell(self._count, steps)

    def end(self) -> None:
        self._hook.remove()
        if self._optimizer is None:
            self._looks = _LOOKS
            self._tell_if_due()


def _optimizer_exists() -> bool:
    return any(issubclass(type(thing), Optimizer) for thing in gc.get_objects())
