"""Models to serve in a benchmark, with random weights: only their shapes matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.serve.card import Card, Picture, write_card

# EfficientNet-Lite0: expansion, channels, blocks, stride, kernel.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class Graph:
    """Nodes and weights, one after the other."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)
        self._count = 0

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self._count += 1
        output = f"t{self._count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def weight(self, *shape: int) -> str:
        fan = int(np.prod(shape[1:])) or 1
        return self.constant(self._random.standard_normal(shape).astype(np.float32) * np.sqrt(2 / fan))

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def conv(
        self, x: str, into: int, out: int, kernel: int, stride: int, groups: int = 1, act: bool = True
    ) -> str:
        weight, bias = self.weight(out, into // groups, kernel, kernel), self.constant(np.zeros(out))
        pad = kernel // 2
        y = self.node(
            "Conv",
            x,
            weight,
            bias,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=groups,
        )
        return self.node("Clip", y, self.constant(0.0), self.constant(6.0)) if act else y

    def save(self, path: Path, given: list[Any], output: str, size: int, card: Card | None = None) -> Path:
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *given])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", size])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        if card is not None:
            write_card(model, card)
        onnx.save(model, str(path))
        return path


def tiny(path: Path, seed: int = 0) -> Path:
    """64 numbers in, 10 out."""
    graph = Graph(seed)
    y = graph.node("Gemm", "x", graph.weight(64, 10), graph.constant(np.zeros(10)))
    return graph.save(path, [64], y, 10)


def mlp(path: Path, width: int = 1024, layers: int = 4) -> Path:
    """As many weights as Lite0, in wide layers: reading them is most of the work, whatever the batch."""
    graph = Graph()
    x = "x"
    for _ in range(layers):
        x = graph.node(
            "Relu", graph.node("Gemm", x, graph.weight(width, width), graph.constant(np.zeros(width)))
        )
    y = graph.node("Gemm", x, graph.weight(width, 10), graph.constant(np.zeros(10)))
    return graph.save(path, [width], y, 10)


def lite0(path: Path) -> Path:
    """EfficientNet-Lite0's layers: 4.7 million weights, 224 x 224 pixels, 1000 classes."""
    graph = Graph()
    x = graph.conv("x", 3, 32, 3, 2)
    into = 32
    for expand, out, blocks, stride, kernel in STAGES:
        for block in range(blocks):
            step = stride if block == 0 else 1
            wide = into * expand
            y = graph.conv(x, into, wide, 1, 1) if expand > 1 else x
            y = graph.conv(y, wide, wide, kernel, step, groups=wide)
            y = graph.conv(y, wide, out, 1, 1, act=False)
            x = graph.node("Add", x, y) if step == 1 and into == out else y
            into = out
    x = graph.conv(x, into, 1280, 1, 1)
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    y = graph.node("Gemm", x, graph.weight(1280, 1000), graph.constant(np.zeros(1000)))
    picture = Picture(height=224, width=224, crop=0.875, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    card = Card(
        name="lite0", task="classify", labels=tuple(f"class {n}" for n in range(1000)), picture=picture
    )
    return graph.save(path, [3, 224, 224], y, 1000, card)
