"""Keras's backends: how gradients leave a compiled step for the reduction, and how variables are read and written.

On torch they are tensors already. A step of TensorFlow calls out once for each part of the gradients, the last layers'
first, so that they travel while the backward pass goes on; one of JAX calls out once, as XLA carries out its calls in
order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from torch import Tensor

from weft.errors import UsageError
from weft.keras.arrays import bytes_as_torch, from_torch, to_torch

PART_BYTES = 8 << 20  # of gradients that a step of TensorFlow hands out at a time
BACKENDS = ("torch", "tensorflow", "jax")

# Given gradients, which it may overwrite, and the number of their part of a step.
Reduce = Callable[[list[Tensor], int], list[Tensor]]


def keras_on(*served: str) -> Any:
    """Return Keras, or refuse: it is missing, too old, or on a backend that is not served."""
    served = served or BACKENDS
    try:
        keras: Any = import_module("keras")
    except ImportError:
        raise UsageError("Keras must be installed, got none; pip install 'keras>=3'") from None
    if int(keras.__version__.split(".")[0]) < 3:
        raise UsageError(f"Keras must be version 3 or newer, got {keras.__version__}; pip install 'keras>=3'")
    backend = keras.backend.backend()
    if backend not in served:
        raise UsageError(
            f"Keras must run on one of the backends {', '.join(served)} here, got {backend}; "
            f"set KERAS_BACKEND={served[0]}"
        )
    return keras


def reduce_in_step(reduce: Reduce) -> Callable[[Sequence[Any]], list[Any]]:
    """Return what reduces the gradients of a step on Keras's present backend; those that are None stay so."""
    inner = {"torch": _on_torch, "tensorflow": _on_tensorflow, "jax": _on_jax}[keras_on().backend.backend()]

    def reduce_given(grads: Sequence[Any]) -> list[Any]:
        given = [index for index, grad in enumerate(grads) if grad is not None]
        result = list(grads)
        for index, reduced in zip(given, inner(reduce, [grads[index] for index in given]), strict=True):
            result[index] = reduced
        return result

    return reduce_given


def _on_torch(reduce: Reduce, grads: list[Any]) -> list[Any]:
    return reduce([grad.detach() for grad in grads], 0)


def _on_arrays(reduce: Reduce, part: int) -> Callable[..., list[Any]]:
    def call(*arrays: Any) -> list[Any]:
        made = reduce(
            [to_torch(array, copy=True) for array in arrays], part
        )  # the framework may read its own
        pairs = zip(made, arrays, strict=True)
        return [from_torch(tensor, array.dtype) for tensor, array in pairs]

    return call


def _on_tensorflow(reduce: Reduce, grads: list[Any]) -> list[Any]:
    tf: Any = import_module("tensorflow")
    dense = [tf.convert_to_tensor(grad) for grad in grads]
    result = list(dense)
    for number, part in enumerate(parts_of([_bytes(grad) for grad in dense])):
        # Calls that have a state are carried out in the order in which they were made: the same on all ranks.
        made = tf.numpy_function(
            _on_arrays(reduce, number),
            [dense[index] for index in part],
            [dense[index].dtype for index in part],
            stateful=True,
        )
        for index, reduced in zip(part, made, strict=True):
            reduced.set_shape(dense[index].shape)
            result[index] = reduced
    return result


def _bytes(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def parts_of(sizes: Sequence[int], most_bytes: int = PART_BYTES) -> list[list[int]]:
    """Return the indices of gradients in parts of about a given number of bytes, the last gradients first."""
    parts: list[list[int]] = []
    room = 0
    for index in reversed(range(len(sizes))):
        if not parts or sizes[index] > room:
            parts.append([])
            room = most_bytes
        parts[-1].append(index)
        room -= sizes[index]
    return parts


def _on_jax(reduce: Reduce, grads: list[Any]) -> list[Any]:
    jax: Any = import_module("jax")
    io_callback: Any = import_module("jax.experimental").io_callback
    if not grads:
        return []
    check_threads(jax)
    shapes = [jax.ShapeDtypeStruct(grad.shape, grad.dtype) for grad in grads]
    return list(io_callback(_on_arrays(reduce, 0), shapes, *grads, ordered=True))


def check_threads(jax: Any) -> None:
    """Refuse a CPU client of one thread: it carries the call out of a step, and would have to bring its arrays too."""
    if jax.default_backend() != "cpu":
        return
    setting = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC")
    threads = int(setting) if setting and setting.isdecimal() else len(os.sched_getaffinity(0))
    if threads < 2:
        raise UsageError(
            "JAX must have two threads for calls out of a step, got one core; set PJRT_NPROC=2 before it starts"
        )


# -- variables ----------------------------------------------------------------------------------------


def optimizer_of(model: Any, optimizer: Any = None) -> Any:
    """Return the optimizer that trains a model: one that is named, or the model's own; None if it has none."""
    return optimizer if optimizer is not None else getattr(model, "optimizer", None)


def build_optimizer(model: Any, optimizer: Any = None) -> None:
    """Make the variables of a model's optimizer, if they are not there."""
    optimizer = optimizer_of(model, optimizer)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def all_variables(model: Any, optimizer: Any = None) -> list[Any]:
    """Return the variables of a model and of its optimizer, each once, in an order that all ranks have."""
    optimizer = optimizer_of(model, optimizer)
    found = [*model.variables, *(optimizer.variables if optimizer is not None else ())]
    return list({id(variable): variable for variable in found}.values())


def broadcast_all(
    model: Any,
    broadcast: Callable[[list[Tensor]], None],
    but: Sequence[Any] = (),
    optimizer: Any = None,
) -> None:
    """Have the variables of a model and of its optimizer, `but` some, overwritten by `broadcast`, in place."""
    keras = keras_on()
    build_optimizer(model, optimizer)
    synced(model)
    variables = [each for each in all_variables(model, optimizer) if not is_one_of(each, but)]
    if keras.backend.backend() == "torch":
        broadcast([variable.value.data for variable in variables])
        return
    copies = [bytes_as_torch(keras.ops.convert_to_numpy(variable.value)) for variable in variables]
    broadcast([memory for _, memory in copies])
    for variable, (copy, _) in zip(variables, copies, strict=True):
        variable.assign(copy)


def is_one_of(variable: Any, given: Sequence[Any]) -> bool:
    """Return whether a variable of Keras is among those given, by itself or as the framework's own."""
    return any(variable is each or variable.value is each for each in given)


def values_of(model: Any, optimizer: Any = None) -> list[Any]:
    """Return copies of the values of a model's variables and of its optimizer's."""
    keras = keras_on()
    build_optimizer(model, optimizer)
    synced(model)
    return [keras.ops.convert_to_numpy(variable.value).copy() for variable in all_variables(model, optimizer)]


def put_values(model: Any, values: Sequence[Any], optimizer: Any = None) -> None:
    """Give a model's variables, and its optimizer's, these values."""
    synced(model)
    for variable, value in zip(all_variables(model, optimizer), values, strict=True):
        variable.assign(value)


def synced(model: Any) -> None:
    """Have a model's variables hold what its training has come to: JAX's trainer keeps that elsewhere meanwhile."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()
