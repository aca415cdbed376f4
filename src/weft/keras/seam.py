"""The seam in Keras 3 where gradients are reduced: `apply` of one optimizer, set on the instance.

All backends come by it: torch's trainer calls it, TensorFlow's `apply_gradients` and JAX's `stateless_apply` end in it.
A saved model names the optimizer's own class, and loads anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import UsageError
from weft.keras.backends import Reduce, keras_on, reduce_in_step
from weft.keras.overlap import OverlappedAverage, StartAverage

_MARK = "_weft_reduces"
_OVERLAP = "_weft_overlap"


def reduce_before_apply(
    optimizer: Any,
    reduce: Reduce,
    passes: int = 1,
    average_passes: bool = False,
    keep: Callable[[Any, Any], Any] | None = None,
    start: StartAverage | None = None,
) -> Any:
    """Have an optimizer reduce its gradients before it applies them, after a number of backward passes; returns it.

    `keep` is given a variable and its gradient, and returns what is applied where nothing is to be reduced, else None.
    With `start`, gradients of torch travel during the backward pass, if each pass is applied: see `overlap_of`.
    Under mixed_float16 Keras puts another optimizer around this one, which scales losses and looks at the gradients
    first: that one reduces, or an overflow on one rank would leave the others waiting.
    """
    keras = keras_on()
    optimizer = keras.optimizers.get(optimizer)
    policy = keras.config.dtype_policy().name
    if policy == "mixed_float16" and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    if getattr(optimizer, _MARK, False):
        return optimizer
    original = optimizer.apply
    reduce_all = reduce_in_step(reduce)
    overlap: OverlappedAverage | None = None
    if start is not None and passes == 1 and keep is None and keras.backend.backend() == "torch":
        overlap = OverlappedAverage(start, lambda grads: reduce(grads, 0))
        setattr(optimizer, _OVERLAP, overlap)
    add: Callable[[Sequence[Any]], list[Any] | None]
    if keras.backend.backend() == "torch":
        add = _Passes(passes, average_passes).add
    else:
        add = _passes_by_keras(optimizer, passes, average_passes)

    def apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        summed = add(grads)
        if summed is None:
            return None
        if overlap is not None:
            variables = trainable_variables or optimizer._trainable_variables
            return original(overlap.reduce(summed, variables), trainable_variables)
        kept = [None] * len(summed)
        if keep is not None:
            variables = trainable_variables or optimizer._trainable_variables
            kept = [keep(variable, grad) for variable, grad in zip(variables, summed, strict=True)]
        reduced = reduce_all([grad if own is None else None for grad, own in zip(summed, kept, strict=True)])
        together = [grad if own is None else own for grad, own in zip(reduced, kept, strict=True)]
        return original(together, trainable_variables)

    optimizer.apply = apply
    setattr(optimizer, _MARK, True)
    return optimizer


def overlap_of(optimizer: Any) -> OverlappedAverage | None:
    """Return what averages an optimizer's gradients during backward passes, if it does; to be told of batches."""
    found: OverlappedAverage | None = getattr(optimizer, _OVERLAP, None)
    return found


def _passes_by_keras(
    optimizer: Any, passes: int, average: bool
) -> Callable[[Sequence[Any]], list[Any] | None]:
    """Have Keras gather the gradients of several passes, whose mean it takes; a compiled step has no state of ours."""
    if passes == 1:
        return list
    if optimizer.built or optimizer.gradient_accumulation_steps:
        raise UsageError(
            "an optimizer that gathers gradients of several passes must be new and without "
            "gradient_accumulation_steps, got one that is in use; make another"
        )
    optimizer.gradient_accumulation_steps = passes
    factor = 1 if average else passes
    return lambda grads: [None if grad is None else grad * factor for grad in grads]


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
