"""Recurrent networks with an open length, written by torch's tracing exporter.

`torch.export` unrolls `nn.LSTM` and its kin into as many steps as the sample has, so their length cannot stay open. The
tracing exporter knows them as the operators that ONNX has for them. What it traced is checked like every other file:
on other lengths, and against the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from weft.serve.export.sources.axes import Axes
from weft.serve.export.sources.outputs import name_outputs


def has_open_loops(module: nn.Module, axes: Axes) -> bool:
    """Return whether a module has recurrent parts, and an axis beside rows that shall stay open."""
    wide = any(axis for open_ones in axes.values() for axis in open_ones)
    return wide and any(isinstance(part, nn.RNNBase) for part in module.modules())


def trace(
    module: nn.Module,
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    axes: Axes,
    opset: int,
) -> bool:
    """Write a traced module to `path`; return False where the tracing exporter cannot."""
    outputs = name_outputs(module(**tensors))
    open_ones = {name: dict(axes[name]) for name in tensors} | open_outputs(outputs, tensors, axes)
    try:
        torch.onnx.export(
            module,
            (),
            str(path),
            kwargs=dict(tensors),
            dynamo=False,
            opset_version=opset,
            input_names=list(tensors),
            output_names=list(outputs),
            dynamic_axes=open_ones,
        )
    except (Exception, SystemExit):
        path.unlink(missing_ok=True)
        return False
    return True


def open_outputs(
    outputs: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], axes: Axes
) -> dict[str, dict[int, str]]:
    """Name the axes of outputs that are as long as an open axis of an input, rows first."""
    sizes: dict[int, str] = {}
    for name, open_ones in axes.items():
        for axis, word in sorted(open_ones.items()):
            sizes.setdefault(tensors[name].shape[axis], word)
    found = {}
    for name, output in outputs.items():
        found[name] = {axis: sizes[size] for axis, size in enumerate(output.shape) if size in sizes}
    return found
