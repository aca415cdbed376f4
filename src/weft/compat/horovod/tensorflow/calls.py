"""Calls out of TensorFlow: a function of torch tensors as an operation, in `tf.function` and outside of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from torch import Tensor

from weft.compat.horovod.errors import SHUT_DOWN, HorovodInternalError
from weft.keras.arrays import from_torch, to_torch

LEAST_VERSION = 2


def load_tensorflow() -> Any:
    """Return TensorFlow, or refuse: it is missing, or too old."""
    try:
        found: Any = import_module("tensorflow")
    except ImportError:
        raise ImportError(
            "horovod.tensorflow must have TensorFlow 2, got none; pip install 'weft[tensorflow]', or use horovod.torch"
        ) from None
    if int(found.__version__.split(".")[0]) < LEAST_VERSION:
        raise ImportError(
            f"horovod.tensorflow must have TensorFlow 2, got {found.__version__}; sessions and graphs of TensorFlow 1 "
            "are not served, so move the script to TensorFlow 2"
        )
    return found


tf = load_tensorflow()
_InvalidArgument: Any = tf.errors.InvalidArgumentError
_FailedPrecondition: Any = tf.errors.FailedPreconditionError
_Unknown: Any = tf.errors.UnknownError


class InvalidCallError(_InvalidArgument, ValueError):  # type: ignore[misc]
    """An operation that one rank alone sees to be wrong."""


class RefusedCallError(_FailedPrecondition, HorovodInternalError):  # type: ignore[misc]
    """An operation on which the ranks do not agree."""


class FailedCallError(_Unknown, HorovodInternalError):  # type: ignore[misc]
    """An operation that failed as a rank is gone."""


def call_out(
    function: Callable[[list[Tensor]], Sequence[Tensor]],
    tensors: Sequence[Any],
    dtypes: Sequence[Any] | None = None,
    shapes: Sequence[Any] | None = None,
) -> list[Any]:
    """Return the results of a function of torch tensors; by default they are such as its arguments are.

    Calls are carried out in the order in which they are made, also in a `tf.function`, so all ranks come to them alike.
    """
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    types = [tensor.dtype for tensor in given] if dtypes is None else list(dtypes)
    if tf.executing_eagerly():
        return _call_now(function, given, types)

    def on_arrays(*arrays: Any) -> list[Any]:
        made = function([to_torch(array) for array in arrays])
        return [from_torch(tensor, dtype.as_numpy_dtype) for tensor, dtype in zip(made, types, strict=True)]

    results = tf.numpy_function(on_arrays, given, types, stateful=True)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    for result, shape in zip(
        results, [each.shape for each in given] if shapes is None else shapes, strict=True
    ):
        result.set_shape(shape)
    return results


def _call_now(
    function: Callable[[list[Tensor]], Sequence[Tensor]], given: Sequence[Any], types: Sequence[Any]
) -> list[Any]:
    """Call a function outside of a `tf.function`; its errors are TensorFlow's, too."""
    try:
        made = function([to_torch(tensor.numpy()) for tensor in given])
    except (HorovodInternalError, ValueError) as error:
        raise _as_tensorflow(error) from error
    return [
        tf.convert_to_tensor(from_torch(tensor, dtype.as_numpy_dtype), dtype)
        for tensor, dtype in zip(made, types, strict=True)
    ]


def _as_tensorflow(error: Exception) -> Exception:
    """Return an error that scripts catch as Horovod's or as TensorFlow's, whichever they know."""
    if isinstance(error, ValueError):
        return InvalidCallError(None, None, str(error))
    failed = SHUT_DOWN in str(error)
    return (FailedCallError if failed else RefusedCallError)(None, None, str(error))


def name_for(word: str, tensor: Any, name: str | None) -> str | None:
    """Return the name of an operation: the given one; in a graph one made of its tensor's; None: it is counted."""
    if name is not None:
        return name
    try:
        text = str(tensor.name)
    except AttributeError:  # outside of a graph
        return None
    return f"Horovod{word}_" + re.sub(r"[^a-zA-Z0-9_]", "_", text)
