"""Callbacks of `horovod.keras`: variables from one rank, averaged metrics, learning rates that warm up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from weft.compat.horovod.engine.world import world
from weft.compat.horovod.keras.values import broadcast_model
from weft.compat.horovod.torch import ops
from weft.keras.backends import keras_on, synced
from weft.keras.training import without_xla

_keras = keras_on()
_Callback: Any = _keras.callbacks.Callback
_Checkpoint: Any = _keras.callbacks.ModelCheckpoint


class BroadcastGlobalVariablesCallback(_Callback):  # type: ignore[misc]
    """Gives everyone the variables of one rank after the first batch, but for local ones."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self._root_rank, self._done = root_rank, False
        self._local: list[Any] = []
        if local_variables is not None:
            several = isinstance(local_variables, (list, tuple, set))
            for variable in local_variables if several else [local_variables]:
                self.register_local_var(variable)

    def register_local_var(self, variable: Any) -> None:
        """Leave a variable as it is on each rank."""
        if not hasattr(variable, "assign"):
            raise ValueError(f"local variables must be variables, got {type(variable).__name__}")
        self._local.append(variable)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        without_xla(model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._done:
            self._done = True
            broadcast_model(self.model, self._root_rank, self._local)


class MetricAverageCallback(_Callback):  # type: ignore[misc]
    """Averages metrics over all ranks at the end of an epoch; put it before callbacks that look at them."""

    def __init__(self, device: str = "", process_set: Any = None) -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs or world.place.size == 1:
            return
        names = sorted(name for name, value in logs.items() if isinstance(value, (int, float)))
        values = torch.tensor([float(logs[name]) for name in names], dtype=torch.float64)
        means = ops.allreduce_(values, name="keras.metrics").tolist()
        logs.update(zip(names, means, strict=True))


class LearningRateScheduleCallback(_Callback):  # type: ignore[misc]
    """Multiplies the learning rate by a number, or by a function of the epoch, between two epochs."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr, self.staircase = initial_lr, staircase
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.multiplier = multiplier if callable(multiplier) else _constant(multiplier)
        self._epoch = 0
        self._momentum: float | None = None  # while it is corrected

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps_per_epoch = self.steps_per_epoch or (self.params or {}).get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ValueError("steps_per_epoch must be given where Keras does not know it, got none")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        late = self.end_epoch is not None and self._epoch >= self.end_epoch
        if self._epoch < self.start_epoch or late or (self.staircase and batch):
            return
        part = 0.0 if self.staircase else batch / (self.steps_per_epoch or 1)
        self._set(self.initial_lr * self.multiplier(self._epoch + part))

    def _set(self, rate: float) -> None:
        optimizer = self.model.optimizer
        synced(self.model)
        before = float(optimizer.learning_rate)
        optimizer.learning_rate = rate
        momentum = getattr(optimizer, "momentum", None)
        # A compiled step of TensorFlow or JAX has the momentum as a constant.
        corrects = self.momentum_correction and _keras.backend.backend() == "torch"
        if corrects and isinstance(momentum, float) and momentum and before:
            self._momentum = momentum
            optimizer.momentum = momentum * rate / before

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._momentum is not None:
            self.model.optimizer.momentum, self._momentum = self._momentum, None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            synced(self.model)
            logs["lr"] = float(self.model.optimizer.learning_rate)


def _constant(value: float) -> Callable[[float], float]:
    return lambda _: value


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from that of one rank to that of all, over the first epochs."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.verbose = verbose

        def multiplier(epoch: float) -> float:
            # The last batch of the last warm-up epoch has the whole rate.
            epoch += 1.0 / (self.steps_per_epoch or 1)
            size = world.place.size
            return min(1.0, 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1))

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end_epoch == epoch + 1 and world.place.rank == 0:
            print(f"Epoch {epoch + 1}: finished gradual learning rate warmup to {self.initial_lr}.")


class BestModelCheckpoint(_Checkpoint):  # type: ignore[misc]
    """Keeps the best model, written by rank 0."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        *,
        filepath: str = "best_model.keras",
        **options: Any,
    ) -> None:
        super().__init__(
            filepath,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            mode=mode,
            save_freq=save_freq,
            **options,
        )

    def _save_model(self, *args: Any, **kwargs: Any) -> Any:
        return super()._save_model(*args, **kwargs) if world.place.rank == 0 else None


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
