"""`hvd.elastic` of `horovod.tensorflow`: states of models and of variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compat.horovod.elastic.loop import run
from weft.compat.horovod.elastic.state import ObjectState
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.keras.elastic import KerasState
from weft.compat.horovod.tensorflow.functions import broadcast_variables
from weft.compat.horovod.torch.functions import broadcast_object


class TensorFlowKerasState(KerasState):
    """A state of a model of Keras, its optimizer and other objects."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class TensorFlowState(ObjectState):
    """A state of variables and other objects."""

    def __init__(self, variables: Sequence[Any] = (), session: Any = None, **kwargs: Any) -> None:
        self.variables = list(variables)
        self._saved_variables = [variable.numpy() for variable in self.variables]
        super().__init__(broadcast_object, lambda: world.place.rank, **kwargs)

    def save(self) -> None:
        self._saved_variables = [variable.numpy() for variable in self.variables]
        super().save()

    def restore(self) -> None:
        for variable, value in zip(self.variables, self._saved_variables, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        broadcast_variables(self.variables, 0)
        self._saved_variables = [variable.numpy() for variable in self.variables]
        super().sync()


__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
