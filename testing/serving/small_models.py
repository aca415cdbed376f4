"""Small ONNX models, built in milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.serve.card import Card, Picture, Tokens, write_card

LABELS = ("red", "green", "blue")


def save(path: Path, graph: onnx.GraphProto, card: Card | None = None) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if card is not None:
        write_card(model, card)
    onnx.save(model, str(path))
    return path


def constant(name: str, values: object, kind: type[np.generic] = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, kind), name)


def tensor(name: str, shape: list[str | int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def times(path: Path, factor: float, width: int = 4) -> Path:
    """y = factor * x, rows of `width`."""
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    x, y = tensor("x", ["batch", width]), tensor("y", ["batch", width])
    return save(path, helper.make_graph([node], "times", [x], [y], [constant("factor", factor)]))


def colours(path: Path, side: int = 8) -> Path:
    """Which of red, green and blue a picture has most of."""
    node = helper.make_node("ReduceMean", ["pixels"], ["scores"], axes=[2, 3], keepdims=0)
    pixels, scores = tensor("pixels", ["batch", 3, side, side]), tensor("scores", ["batch", 3])
    card = Card(
        name="colours",
        task="classify",
        labels=LABELS,
        picture=Picture(height=side, width=side, resize="stretch", scale=1 / 25.5),
    )
    return save(path, helper.make_graph([node], "colours", [pixels], [scores]), card)


def words(path: Path, limit: int = 8) -> Path:
    """Token numbers in, the same out; rows may have any length up to a limit."""
    node = helper.make_node("Abs", ["tokens"], ["y"])
    tokens, y = (tensor(name, ["batch", "length"], TensorProto.INT64) for name in ("tokens", "y"))
    card = Card(name="words", tokens=Tokens(limit=limit))
    return save(path, helper.make_graph([node], "words", [tokens], [y]), card)


def boxes(path: Path, side: int = 8) -> Path:
    """Always the same boxes, so that what becomes of them can be compared: two overlap, one is apart."""
    nodes = [
        helper.make_node("ReduceMean", ["pixels"], ["mean"], axes=[1, 2, 3], keepdims=1),
        helper.make_node("Mul", ["mean", "zero"], ["nothing_"]),
        helper.make_node("Squeeze", ["nothing_", "axis"], ["nothing"]),
        helper.make_node("Add", ["nothing", "some"], ["boxes"]),
        helper.make_node("Add", ["nothing", "certain"], ["scores"]),
    ]
    found = [[[0, 0, 4, 4], [0, 0, 4, 3.9], [4, 4, 8, 8]]]
    certain = [[[0.9, 0.0, 0.0], [0.8, 0.0, 0.0], [0.0, 0.0, 0.7]]]
    pixels = tensor("pixels", ["batch", 3, side, side])
    graph = helper.make_graph(
        nodes,
        "boxes",
        [pixels],
        [tensor("boxes", ["batch", 3, 4]), tensor("scores", ["batch", 3, 3])],
        [
            constant("zero", 0),
            constant("axis", [3], np.int64),
            constant("some", found),
            constant("certain", certain),
        ],
    )
    card = Card(
        name="boxes", task="detect", labels=LABELS, picture=Picture(height=side, width=side, resize="stretch")
    )
    return save(path, graph, card)


def busy(path: Path) -> Path:
    """As slow as asked: multiplies a matrix n times. Not for batches: its input is one number."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "still"], ["next"]),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            tensor("step", [], TensorProto.INT64),
            tensor("going", [], TensorProto.BOOL),
            tensor("state", [128, 128]),
        ],
        [tensor("on", [], TensorProto.BOOL), tensor("next", [128, 128])],
        [constant("still", np.eye(128))],
    )
    nodes = [
        helper.make_node("Squeeze", ["n"], ["count"]),
        helper.make_node("Loop", ["count", "yes", "first"], ["last"], body=body),
        helper.make_node("ReduceSum", ["last"], ["y"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "busy",
        [tensor("n", [1], TensorProto.INT64)],
        [tensor("y", [])],
        [constant("yes", True, np.bool_), constant("first", np.eye(128))],
    )
    return save(path, graph)


def brief(path: Path) -> Path:
    """y = 2 * x in BF16, and the same sum in FP32."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "wide"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["y"], to=TensorProto.BFLOAT16),
    ]
    x, y = (tensor(name, ["batch", 3], TensorProto.BFLOAT16) for name in ("x", "y"))
    return save(path, helper.make_graph(nodes, "brief", [x], [y, tensor("sum", ["batch", 3])]))


def mixed(path: Path) -> Path:
    """Several inputs and types: text in and out, a count, a flag."""
    nodes = [
        helper.make_node("Identity", ["text"], ["said"]),
        helper.make_node("Add", ["count", "one"], ["more"]),
        helper.make_node("Not", ["flag"], ["other"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [
            tensor("text", ["batch"], TensorProto.STRING),
            tensor("count", ["batch", 2], TensorProto.INT64),
            tensor("flag", ["batch"], TensorProto.BOOL),
        ],
        [
            tensor("said", ["batch"], TensorProto.STRING),
            tensor("more", ["batch", 2], TensorProto.INT64),
            tensor("other", ["batch"], TensorProto.BOOL),
        ],
        [constant("one", 1, np.int64)],
    )
    return save(path, graph)
