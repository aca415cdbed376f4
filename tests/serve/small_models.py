"""ONNX files of a few bytes, made by hand: for tests that need a file and no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.serve.card import Card, write_card


def scaled(factor: float = 2.0, card: Card | None = None) -> Any:
    """A model that multiplies rows of three numbers."""
    weights = numpy_helper.from_array(np.full((3,), factor, np.float32), "factor")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    if card is not None:
        write_card(model, card)
    return model


def write_scaled(
    path: Path, factor: float = 2.0, card: Card | None = None, *, external: bool = False
) -> Path:
    onnx.save(
        scaled(factor, card),
        path,
        save_as_external_data=external,
        location=f"{path.name}.data",
        size_threshold=0,
    )
    return path
