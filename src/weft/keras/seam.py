"""The seam in Keras 3 where gradients are reduced: `apply` of one optimizer, set on the instance.

A saved model names the optimizer's own class then, and loads anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from weft.errors import UsageError

Reduce = Callable[[list[Any]], list[Any]]  # of gradients; None stays None
_MARK = "_weft_reduces"


def keras_on_torch() -> Any:
    """Return Keras, or refuse: it is missing, too old, or on a backend that is not served."""
    try:
        keras: Any = import_module("keras")
    except ImportError:
        raise UsageError("Keras must be installed, got none; pip install 'keras>=3'") from None
    if int(keras.__version__.split(".")[0]) < 3:
        raise UsageError(f"Keras must be version 3 or newer, got {keras.__version__}; pip install 'keras>=3'")
    if keras.backend.backend() != "torch":
        raise UsageError(
            f"Keras must run on its torch backend here, got {keras.backend.backend()}; set KERAS_BACKEND=torch"
        )
    return keras


def reduce_before_apply(optimizer: Any, reduce: Reduce, passes: int = 1, average_passes: bool = False) -> Any:
    """Have an optimizer reduce its gradients before it applies them, after so many backward passes; returns it.

    Under mixed_float16 Keras puts another optimizer around this one, which scales losses and looks at the gradients
    first: that one reduces, or an overflow on one rank would leave the others waiting.
    """
    keras = keras_on_torch()
    optimizer = keras.optimizers.get(optimizer)
    policy = keras.config.dtype_policy().name
    if policy == "mixed_float16" and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    if getattr(optimizer, _MARK, False):
        return optimizer
    original = optimizer.apply
    waiting = _Passes(passes, average_passes)

    def apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        summed = waiting.add(grads)
        return None if summed is None else original(reduce(summed), trainable_variables)

    optimizer.apply = apply
    setattr(optimizer, _MARK, True)
    return optimizer


class _Passes:
    """Gradients of several backward passes, summed until there are enough."""

    def __init__(self, passes: int, average: bool) -> None:
        self._passes, self._average = passes, average
        self._count = 0
        self._sums: list[Any] | None = None

    def add(self, grads: Sequence[Any]) -> list[Any] | None:
        """Return the gradients to apply; None while passes are missing."""
        if self._passes == 1:
            return list(grads)
        if self._sums is None:
            self._sums = [None if grad is None else grad.clone() for grad in grads]
        else:
            self._sums = [_sum(before, grad) for before, grad in zip(self._sums, grads, strict=True)]
        self._count += 1
        if self._count < self._passes:
            return None
        sums, self._sums, self._count = self._sums, None, 0
        if self._average:
            sums = [None if grad is None else grad / self._passes for grad in sums]
        return sums


def _sum(before: Any, grad: Any) -> Any:
    if before is None or grad is None:
        return grad if before is None else before
    return before + grad


def tensors_of(variables: Sequence[Any]) -> list[Any]:
    """Return the memory of Keras variables as torch tensors, each once."""
    found = {id(variable): variable for variable in variables}
    return [variable.value.data for variable in found.values()]


def build_optimizer(model: Any) -> None:
    """Make the variables of a model's optimizer, if they are not there."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def all_variables(model: Any) -> list[Any]:
    """Return the variables of a model and of its optimizer, in an order that all ranks have."""
    optimizer = getattr(model, "optimizer", None)
    return [*model.variables, *(optimizer.variables if optimizer is not None else ())]
