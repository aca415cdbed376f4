"""What an ONNX file is, counted from its graph: inputs, outputs, parameters, operations for one row; and its speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from weft.serve.card import Card, read_card
from weft.serve.export.file import load_graph, shape_of
from weft.serve.export.runtime import Session
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
LENGTH = 16  # of an open axis that nothing says a size for


@dataclass(frozen=True)
class Port:
    """An input or an output: its axes are numbers, or names where they are open."""

    name: str
    type: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.type}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Description:
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


@dataclass(frozen=True)
class Latency:
    """The median time of one row."""

    median_ms: float
    runs: int
    threads: int


def describe(path: Path) -> Description:
    model = load_graph(path)
    card = read_card(path)
    flops, uncounted = _operations(model, card)
    opset = next((used.version for used in model.opset_import if used.domain in ("", "ai.onnx")), 0)
    return Description(
        path,
        card,
        size_with_weights(path),
        opset,
        tuple(map(_port, model.graph.input)),
        tuple(map(_port, model.graph.output)),
        len(model.graph.node),
        _parameters(model.graph),
        flops,
        uncounted,
    )


def measure(path: Path, card: Card, runs: int = 20, threads: int = 0) -> Latency:
    """Run one row again and again, made of zeros."""
    session = Session(path, threads)
    inputs: dict[str, Array] = {
        port.name: np.zeros(
            [side if isinstance(side, int) else _open_size(str(side), card) for side in port.shape],
            KINDS.get(port.type, np.float32),
        )
        for port in session.inputs
    }
    return Latency(session.latency_ms(inputs, runs), runs, session.threads)


def _port(value: Any) -> Port:
    import onnx

    kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return Port(value.name, "string" if kind == np.dtype(object) else kind.name, tuple(shape_of(value)))


def _open_size(name: str, card: Card) -> int:
    """The size of an open axis when one row is asked."""
    if name in ("height", "width") and card.picture is not None:
        return card.picture.height if name == "height" else card.picture.width
    if name == "length":
        return card.tokens.limit if card.tokens is not None else LENGTH
    return LENGTH if name in ("height", "width") else 1


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


def _operations(model: Any, card: Card) -> tuple[int, int]:
    shapes = _shapes(model, card)
    total = uncounted = 0
    for node in model.graph.node:
        if node.op_type not in COUNTS:
            continue
        count = COUNTS[node.op_type](node, shapes)
        total += count or 0
        uncounted += count is None
    return total, uncounted


def _shapes(model: Any, card: Card) -> dict[str, Shape]:
    """Shapes of all values for one row, as far as they can be inferred."""
    import onnx

    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        for side in value.type.tensor_type.shape.dim:
            if not side.HasField("dim_value"):
                side.dim_value = _open_size(side.dim_param, card)
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
