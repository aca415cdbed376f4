"""`hvd.elastic` of `horovod.keras`: a state of a model and its optimizer, and callbacks that commit it."""

from __future__ import annotations

from typing import Any

from weft.compat.horovod.elastic.loop import run
from weft.compat.horovod.elastic.state import ObjectState
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.keras.values import broadcast_model
from weft.compat.horovod.torch.functions import broadcast_object
from weft.keras.backends import keras_on, put_values, values_of

_Callback: Any = keras_on().callbacks.Callback


class KerasState(ObjectState):
    """A state of a model, its optimizer and other objects."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        self._saved_values: list[Any] = []
        super().__init__(broadcast_object, lambda: world.place.rank, **kwargs)
        self._saved_values = values_of(self.model, self.optimizer)

    def save(self) -> None:
        self._saved_values = values_of(self.model, self.optimizer)
        super().save()

    def restore(self) -> None:
        put_values(self.model, self._saved_values, self.optimizer)
        super().restore()

    def sync(self) -> None:
        broadcast_model(self.model, 0, optimizer=self.optimizer)
        self._saved_values = values_of(self.model, self.optimizer)
        super().sync()


class CommitStateCallback(_Callback):  # type: ignore[misc]
    """Commits a state every N batches, and at the end of an epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state, self.batches_per_commit = state, batches_per_commit
        self._left = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self._left = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if not self._left:
            self._left = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


class UpdateBatchStateCallback(_Callback):  # type: ignore[misc]
    """Notes in a state which batch of the epoch is next; a resumed epoch has only the rest of its batches."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._first = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._first = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self._first + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(_Callback):  # type: ignore[misc]
    """Notes in a state which epoch is next."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._first = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._first = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self._first + epoch + 1


__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
