"""Description of an ONNX file, counted from its graph: inputs, outputs, parameters, operations for a row; its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.card import Card, read_card
from weft.serve.export.checks.runtime import ModelSession
from weft.serve.export.file import load_graph, shape_of
from weft.serve.onnx_file import size_with_weights

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...] | None  # None: not known

KINDS = {  # as ONNX Runtime names the types of inputs
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}
# Of open axes that nothing says a size for.
SIDE = 224
LENGTH = 16


@dataclass(frozen=True)
class Port:
    """An input or an output: its axes are numbers, or names where they are open."""

    name: str
    type: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.type}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ModelDescription:
    """A file, as it is found."""

    path: Path
    card: Card
    size: int
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: int
    parameters: int
    flops: int  # of Conv, Gemm and MatMul for one row; a multiplication and an addition are two
    uncounted: int  # such nodes whose shapes are not known
    row: Mapping[str, tuple[int, ...]]  # what was taken for one row of each input that has open axes


@dataclass(frozen=True)
class Latency:
    """The median time of one row."""

    median_ms: float
    runs: int
    threads: int


def describe(path: Path, sizes: Mapping[str, Sequence[int]] | None = None) -> ModelDescription:
    """Count; `sizes` are those of one row of inputs whose axes are open."""
    model = load_graph(path)
    card = read_card(path)
    ports = tuple(map(_port, model.graph.input))
    rows = {port.name: row_of(port, card, (sizes or {}).get(port.name)) for port in ports}
    flops, uncounted = _operations(model, rows)
    opset = next((used.version for used in model.opset_import if used.domain in ("", "ai.onnx")), 0)
    return ModelDescription(
        path,
        card,
        size_with_weights(path),
        opset,
        ports,
        tuple(map(_port, model.graph.output)),
        len(model.graph.node),
        _parameters(model.graph),
        flops,
        uncounted,
        {port.name: rows[port.name][1:] for port in ports if _is_open(port)},
    )


def measure(path: Path, found: ModelDescription, runs: int = 20, threads: int = 0) -> Latency:
    """Run one row again and again, made of zeros."""
    session = ModelSession(path, threads)
    inputs: dict[str, Array] = {}
    for port, known in zip(session.inputs, found.inputs, strict=True):
        if port.type not in KINDS:
            raise ModelError(f"inputs must be numbers to be made up, got {port.name} of {port.type}")
        rest = found.row.get(known.name) or tuple(side for side in known.shape[1:] if isinstance(side, int))
        first = known.shape[:1]
        rows = tuple(side if isinstance(side, int) else 1 for side in first)
        inputs[port.name] = np.zeros((*rows, *rest), KINDS[port.type])
    return Latency(session.latency_ms(inputs, runs), runs, session.threads)


def _port(value: Any) -> Port:
    import onnx

    kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return Port(value.name, "string" if kind == np.dtype(object) else kind.name, tuple(shape_of(value)))


def _is_open(port: Port) -> bool:
    return any(isinstance(side, str) for side in port.shape[1:])


def row_of(port: Port, card: Card, given: Sequence[int] | None = None) -> tuple[int, ...]:
    """The shape of an input when one row is asked: open axes as given, as the card says, or as is usual."""
    if given is not None:
        fits = len(given) == len(port.shape) - 1 and all(
            isinstance(side, str) or side == size for side, size in zip(port.shape[1:], given, strict=True)
        )
        if not fits:
            raise ModelError(f"one row must fit {port}, got {list(given)}")
        return (1, *given)
    sizes = [side if isinstance(side, int) else 0 for side in port.shape]
    for axis, side in enumerate(sizes):
        if side:
            continue
        if axis == 0:
            sizes[axis] = 1
        elif len(sizes) == 4:
            sides = (card.picture.height, card.picture.width) if card.picture is not None else (SIDE, SIDE)
            heights = 1 if card.picture is not None and card.picture.layout == "NHWC" else 2
            sizes[axis] = sides[axis > heights]
        else:
            sizes[axis] = card.tokens.limit if card.tokens is not None else LENGTH
    return tuple(sizes)


def _parameters(graph: Any) -> int:
    """Numbers that were learned: not shapes and indices, nor the scales of int8."""
    scales = {name for node in graph.node if "quantize" in node.op_type.lower() for name in node.input[1:]}
    small = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}  # biases are int32
    count = sum(
        prod(tensor.dims)
        for tensor in graph.initializer
        if tensor.name not in scales and (tensor.name in small or _is_weight(tensor))
    )
    for node in graph.node:  # trees keep theirs in the node
        for attribute in node.attribute:
            count += len(attribute.floats) + (prod(attribute.t.dims) if _is_weight(attribute.t) else 0)
    return int(count)


def _is_weight(tensor: Any) -> bool:
    from onnx import TensorProto

    small = (TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, *small) and bool(tensor.dims)


def _operations(model: Any, rows: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    shapes = _shapes(model, rows)
    total = uncounted = 0
    for node in model.graph.node:
        if node.op_type not in COUNTS:
            continue
        count = COUNTS[node.op_type](node, shapes)
        total += count or 0
        uncounted += count is None
    return total, uncounted


def _shapes(model: Any, rows: Mapping[str, tuple[int, ...]]) -> dict[str, Shape]:
    """Shapes of all values for one row, as far as they can be inferred."""
    import onnx

    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        for side, size in zip(value.type.tensor_type.shape.dim, rows[value.name], strict=True):
            side.dim_value = size
    fixed.graph.ClearField("value_info")  # with names of open axes, which would stay
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        fixed = onnx.shape_inference.infer_shapes(fixed, data_prop=True)
    except Exception:  # of a graph it does not understand
        return {}
    found: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in fixed.graph.initializer}
    for value in (*fixed.graph.input, *fixed.graph.output, *fixed.graph.value_info):
        sides = shape_of(value)
        known = [side for side in sides if isinstance(side, int)]
        has = value.type.tensor_type.HasField("shape") and len(known) == len(sides)
        found[value.name] = tuple(known) if has else None
    return found


def _conv(node: Any, shapes: Mapping[str, Shape]) -> int | None:
    """2 x outputs x weights that each is a sum over: channels of its group x kernel."""
    weights, out = shapes.get(node.input[1]), shapes.get(node.output[0])
    return 2 * prod(out) * prod(weights[1:]) if weights and out else None


def _conv_transpose(node: Any, shapes: Mapping[str, Shape]) -> int | None:
    """2 x inputs x weights that each goes into."""
    weights, given = shapes.get(node.input[1]), shapes.get(node.input[0])
    return 2 * prod(given) * prod(weights[1:]) if weights and given else None


def _matmul(node: Any, shapes: Mapping[str, Shape]) -> int | None:
    left, out = shapes.get(node.input[0]), shapes.get(node.output[0])
    return 2 * prod(out) * left[-1] if left and out is not None else None


def _gemm(node: Any, shapes: Mapping[str, Shape]) -> int | None:
    turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    left, out = shapes.get(node.input[0]), shapes.get(node.output[0])
    return 2 * prod(out) * left[0 if turned else 1] if left and out else None


COUNTS = {"Conv": _conv, "ConvTranspose": _conv_transpose, "MatMul": _matmul, "Gemm": _gemm}
