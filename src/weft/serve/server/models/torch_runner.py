"""The native path for models that do not export: a torch module made by a factory.

The factory returns a module. Its inputs are the arguments of `forward`, by name; what cannot be known of a module,
such as types and shapes, it may tell in attributes: `weft_inputs = {"x": ("FP32", [-1, 64])}`, `weft_outputs` alike,
and a card in `weft_card`. Without them inputs are rows of FP32, as long as its first linear layer takes.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ModelError
from weft.serve.card import Card
from weft.serve.server.models.loading import Build
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocols.tensors import BF16, NUMPY, Array, TensorSpec
from weft.serve.server.refusal import RefusalError

if TYPE_CHECKING:
    import torch


class TorchRunner:
    """A module in eval mode, without gradients."""

    platform = "pytorch_module"

    def __init__(self, module: torch.nn.Module, options: ModelOptions) -> None:
        import torch

        cuda = torch.cuda.is_available()
        if options.device == "cuda" and not cuda:
            raise ModelError("device cuda needs an accelerator that torch can use, got none")
        self._device = torch.device("cuda" if cuda and options.device != "cpu" else "cpu")
        self.processor = "GPU" if self._device.type == "cuda" else "CPU"
        self._module = module.eval().to(self._device)
        torch.set_num_threads(options.share())
        self.card: Card = getattr(module, "weft_card", None) or Card()
        self.inputs = _inputs(module)
        self.outputs = self._outputs(module)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        import torch

        try:
            with torch.inference_mode():
                # Arrays may be views of a request's bytes, which nothing may write to.
                given = {name: _tensor(array).to(self._device) for name, array in feeds.items()}
                answer = self._module(**given)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            raise RefusalError(400, f"the model refused its inputs: {str(error)[:500]}") from None
        return [_array(value.cpu()) for value in _values(answer)]

    def _outputs(self, module: torch.nn.Module) -> tuple[TensorSpec, ...]:
        """As told, or as one run on zeros shows them: their first size is the batch."""
        declared = getattr(module, "weft_outputs", None)
        if declared is not None:
            return _specs(declared)
        feeds: dict[str, Array] = {
            spec.name: np.zeros([1 if size == -1 else size for size in spec.shape], NUMPY[spec.datatype])
            for spec in self.inputs
        }
        try:
            results = self.run(feeds)
        except RefusalError as error:
            raise ModelError(
                f"the module must run on zeros of its inputs, got: {error}; tell them in weft_inputs, "
                '{"x": ("FP32", [-1, 64])}, and the outputs in weft_outputs'
            ) from error
        names = {np.dtype(kind): name for name, kind in NUMPY.items()}
        free = all(spec.shape and spec.shape[0] == -1 for spec in self.inputs)
        return tuple(
            TensorSpec(
                "output" if len(results) == 1 else f"output_{place}",  # as exported files have it
                names[result.dtype],
                (-1, *result.shape[1:]) if free and result.ndim else result.shape,
            )
            for place, result in enumerate(results)
        )


def _tensor(array: Array) -> torch.Tensor:
    import torch

    if array.dtype == BF16:  # which torch does not take from numpy, nor give to it
        return torch.tensor(array.view(np.int16)).view(torch.bfloat16)
    return torch.tensor(array)


def _array(value: torch.Tensor) -> Array:
    import torch

    if value.dtype == torch.bfloat16:
        return np.asarray(value.view(torch.int16).numpy()).view(BF16)
    return np.asarray(value.numpy())


def torch_build(factory: str) -> Build:
    """Return how replicas of a factory's module are made; each gets its own."""
    return lambda options: TorchRunner(_make(factory), options)


def _make(text: str) -> torch.nn.Module:
    import torch

    module_name, _, attribute = text.rpartition(":")
    if os.getcwd() not in sys.path:  # noqa: PTH109  # as python -m has it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        factory: Callable[[], Any] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{text} must be a factory, module:function, got: {error}") from error
    made = factory()
    if not isinstance(made, torch.nn.Module):
        raise ModelError(f"{text} must return a torch module, got {type(made).__name__}")
    return made


def _inputs(module: torch.nn.Module) -> tuple[TensorSpec, ...]:
    declared = getattr(module, "weft_inputs", None)
    if declared is not None:
        return _specs(declared)
    names = [
        name
        for name, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.default is parameter.empty and parameter.kind == parameter.POSITIONAL_OR_KEYWORD
    ]
    sizes = (getattr(child, "in_features", None) for child in module.modules())
    size = next((size for size in sizes if isinstance(size, int)), -1)
    return tuple(TensorSpec(name, "FP32", (-1, size)) for name in names)


def _specs(told: Mapping[str, tuple[str, list[int]]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, datatype, tuple(shape)) for name, (datatype, shape) in told.items())


def _values(answer: Any) -> list[torch.Tensor]:
    if isinstance(answer, Mapping):
        return list(answer.values())
    return list(answer) if isinstance(answer, tuple | list) else [answer]
