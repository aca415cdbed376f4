"""Callbacks that put the steps of Lightning or of Hugging Face's Trainer under a budget.

    lightning.Trainer(callbacks=[lightning_callback(limit="20GB")])
    transformers.Trainer(..., callbacks=[trainer_callback(limit="20GB")])

Neither library is loaded before its callback is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from weft.errors import UsageError
from weft.lms.activations.session import BudgetSession
from weft.lms.api import session_for


class TrainerSteps:
    """The steps of a trainer under a budget: each begins with a batch and ends before the optimizer's step."""

    def __init__(self, limit: str | int | float, host: str | int | float | None, transfer: Any) -> None:
        self._asked = (limit, host, transfer)
        self._session: BudgetSession | None = None

    @property
    def session(self) -> BudgetSession:
        if self._session is None:  # not before training starts: the device may not be chosen yet
            self._session = session_for(*self._asked)
        return self._session

    def name_modules(self, model: Any) -> None:
        """Know the modules of a model by their paths, for explanations."""
        if isinstance(model, torch.nn.Module):
            self.session.names.add(model)

    def begin(self) -> None:
        self.session.begin()

    def end(self, failed: bool = False) -> None:
        if self._session is not None:
            self._session.end(failed)


def lightning_callback(
    limit: str | int | float = "auto", host: str | int | float | None = None, *, transfer: Any = None
) -> Any:
    """Return a Lightning callback that trains within a budget."""
    base = _base(("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"), "Callback", "lightning")

    class LargeModelSupport(base):  # type: ignore[misc, valid-type]
        """Trains within a budget of device memory."""

        def __init__(self) -> None:
            self.steps = TrainerSteps(limit, host, transfer)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.steps.name_modules(pl_module)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            self.steps.begin()

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            self.steps.end()

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            self.steps.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.steps.end(failed=True)

    return LargeModelSupport()


def trainer_callback(
    limit: str | int | float = "auto", host: str | int | float | None = None, *, transfer: Any = None
) -> Any:
    """Return a callback for Hugging Face's Trainer that trains within a budget."""
    base = _base(("transformers",), "TrainerCallback", "transformers")

    class LargeModelSupport(base):  # type: ignore[misc, valid-type]
        """Trains within a budget of device memory."""

        def __init__(self) -> None:
            self.steps = TrainerSteps(limit, host, transfer)

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            self.steps.name_modules(model)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps.begin()

        def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps.begin()  # the next part of an accumulated step

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps.end()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps.end()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps.end()

    return LargeModelSupport()


def _base(modules: tuple[str, ...], name: str, package: str) -> Any:
    """Return the class to derive from, in the first module that has it."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except ImportError:
            continue
    raise UsageError(
        f"{package} must be installed for its callback, got no module {modules[0]}; pip install {package}"
    )
