"""Search for the first node of a file whose value differs from the graph that torch captured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import fx

from weft.serve.export.checks.parity import Array, Gate, compare
from weft.serve.export.checks.runtime import ModelSession


def first_difference(
    program: torch.export.ExportedProgram, file: Path, inputs: Mapping[str, Array]
) -> str | None:
    """The name of the first value that differs, of those that both graphs have; None where all are alike."""
    import onnx

    model = onnx.load(file)
    captured = _values(program, inputs)
    given = {value.name for value in (*model.graph.input, *model.graph.output)}
    shared: list[str] = [
        name for node in model.graph.node for name in node.output if name in captured and name not in given
    ]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shared)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "all.onnx"
        onnx.save(model, path, save_as_external_data=True)
        answer = ModelSession(path)(inputs)
    for name in shared:
        expected = captured[name]
        if expected.shape == answer[name].shape:
            found = compare({name: expected}, {name: answer[name]}, 0, Gate(), classes=False)
            if found.beyond is not None:
                return name
    return None


class _Keeper(fx.Interpreter):
    """Runs a graph and keeps every tensor that it comes by."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.kept: dict[str, Array] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.kept[n.name] = np.array(result.detach().cpu().numpy())
        return result


def _values(program: torch.export.ExportedProgram, inputs: Mapping[str, Array]) -> dict[str, Array]:
    module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    keeper = _Keeper(module)
    devices = {tensor.device for tensor in program.state_dict.values()} or {torch.device("cpu")}
    tensors = [torch.from_numpy(array.copy()).to(next(iter(devices))) for array in inputs.values()]
    with torch.no_grad():
        keeper.run(*tensors)
    return keeper.kept
