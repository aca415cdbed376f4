"""Operations of `horovod.keras` on values: numbers, NumPy arrays and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from weft.compat.horovod.torch import gradients
from weft.compat.horovod.torch.compression import Compression
from weft.compat.horovod.torch.functions import broadcast_parameters
from weft.compat.horovod.torch.ops import Average
from weft.compat.horovod.torch.submission import reduce_kind
from weft.keras.arrays import to_torch
from weft.keras.backends import broadcast_all, keras_on


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return to_torch(keras_on().ops.convert_to_numpy(value) if _is_foreign(value) else value)


def _is_foreign(value: Any) -> bool:
    """Return whether a value is a tensor of another framework, on which Keras runs."""
    return not isinstance(value, (int, float, list, tuple)) and bool(keras_on().ops.is_tensor(value))


def _like(made: torch.Tensor, given: Any) -> Any:
    """Return a result in the form that was given: a tensor for a tensor, an array or a number else."""
    if isinstance(given, torch.Tensor):
        return made
    if _is_foreign(given):
        return keras_on().ops.convert_to_tensor(made.numpy())
    return made.item() if made.dim() == 0 else made.numpy()


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Return the mean of a value over all ranks, or another reduction."""
    kind = reduce_kind(op, average)
    made = gradients.allreduce(
        _tensor(value),
        name=name,
        op=kind,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
    )
    return _like(made, value)


def allgather(value: Any, name: str | None = None) -> Any:
    """Return the rows of all ranks."""
    return _like(gradients.allgather(_tensor(value), name), value)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the value of one rank."""
    return _like(gradients.broadcast(_tensor(value), root_rank, name), value)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Return this rank's rows of a reduction."""
    return _like(gradients.reducescatter(_tensor(value), name, op=op), value)


def broadcast_global_variables(root_rank: int, model: Any = None) -> None:
    """Refuse: Keras 3 has no global variables; a model's are broadcast by the callback."""
    if model is None:
        raise ValueError(
            "Keras 3 has no global variables; use hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank)"
        )
    broadcast_model(model, root_rank)


def broadcast_model(model: Any, root_rank: int, local: Sequence[Any] = (), optimizer: Any = None) -> None:
    """Give everyone the variables of one rank's model and of its optimizer, but for local ones."""

    def broadcast_tensors(tensors: list[torch.Tensor]) -> None:
        broadcast_parameters([(f"keras.{index}", tensor) for index, tensor in enumerate(tensors)], root_rank)

    broadcast_all(model, broadcast_tensors, local, optimizer)
