"""Broadcasts of TensorFlow's variables and of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.tensorflow.calls import call_out, tf
from weft.compat.horovod.torch import functions


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> None:
    """Give everyone the variables of one rank, all at once; those of Keras, too."""
    plain = [
        getattr(variable, "value", variable) if _is_keras(variable) else variable for variable in variables
    ]
    if not plain:
        return
    values = [tf.convert_to_tensor(variable) for variable in plain]

    def send(tensors: list[Tensor]) -> Sequence[Tensor]:
        copies = [tensor.clone() for tensor in tensors]
        named = [(f"variables.{index}", copy) for index, copy in enumerate(copies)]
        functions.broadcast_parameters(list(named), root_rank, process_set)
        return copies

    for variable, value in zip(plain, call_out(send, [_as_signed(each) for each in values]), strict=True):
        variable.assign(_unsigned(value, variable.dtype))


def broadcast_(
    variables: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Give everyone a variable of one rank, or several; returns them."""
    several = isinstance(variables, (list, tuple))
    broadcast_variables(variables if several else [variables], root_rank, process_set)
    return variables


def _is_keras(variable: Any) -> bool:
    return type(variable).__module__.startswith("keras") and not callable(variable.value)


def _as_signed(value: Any) -> Any:
    """Return numbers of a type that travels; the states of Keras's random generators are unsigned."""
    return tf.bitcast(value, tf.int32) if value.dtype == tf.uint32 else value


def _unsigned(value: Any, dtype: Any) -> Any:
    return tf.bitcast(value, tf.uint32) if tf.as_dtype(dtype) == tf.uint32 else value


def broadcast_global_variables(root_rank: int) -> None:
    """Refuse: TensorFlow 2 has no global variables."""
    raise RuntimeError(
        "hvd.broadcast_global_variables() must have TensorFlow 1, got TensorFlow 2, which has no global variables; use "
        "hvd.broadcast_variables(model.variables, root_rank)"
    )


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the object of one rank, on every rank."""
    return functions.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return a function that broadcasts objects from one rank."""
    return lambda obj: functions.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks."""
    return list(functions.allgather_object(obj, name, process_set))
