"""One ONNX graph of a whole model: raw rows in, classes with probabilities or numbers out.

Each raw column is an input of its own name and of the shape (batch, 1): float64 for numbers (NaN: missing), and strings
for dates, categories and text ("": missing). Dates are written as in the table, or in ISO 8601 where it had timestamps.
Dates and text need two operations of ONNX Runtime (Tokenizer, MurmurHash3), which `weft serve` has.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from weft.auto.dumped_trees import dumped_trees
from weft.auto.families.network import DenseNetwork
from weft.auto.families.spaces import FAMILIES
from weft.auto.features.written import onnx_seconds, written
from weft.auto.frames import RawColumn, RawTable
from weft.auto.model import AutoModel, EnsembleMember
from weft.errors import ParityError
from weft.learn.onnx import IR, ML_OPSET, OPSET, OnnxGraph
from weft.learn.onnx import to_onnx as estimator_to_onnx

Array = np.ndarray[Any, Any]

CONTRIB = "com.microsoft"
CLOSE = 1e-6  # by which answers in Python and in the graph may differ, relative to 1 or to the answer
CLOSE_SINGLE = 1e-5  # the same, where XGBoost adds up its trees in float32
COMPARED_ROWS = 200


def to_onnx(model: AutoModel) -> Any:
    """Return the graph of a model."""
    from onnx import TensorProto, checker, helper

    graph = OnnxGraph(np.dtype(np.float64))
    kinds = model.kinds
    inputs = {name: graph.add("Identity", name, out=f"in_{place}") for place, name in enumerate(kinds)}
    for role in model.columns:
        if role.used and role.kind == "date":
            inputs[role.name] = onnx_seconds(graph, inputs[role.name], role.format)
    parts = [_weighted(graph, member, number, inputs) for number, member in enumerate(model.members)]
    answer = parts[0] if len(parts) == 1 else graph.add("Sum", *parts)
    if model.power != 1:
        raised = graph.add("Pow", answer, graph.constant(np.full(1, model.power)))
        total = graph.add("ReduceSum", raised, graph.constant(np.array([1])), keepdims=1)
        answer = graph.add("Div", raised, total)
    if model.task.classes is None:
        graph.answer(graph.add("Squeeze", answer, graph.constant(np.array([1]))), "prediction", None)
    else:
        graph.labels(graph.add("ArgMax", answer, axis=1, keepdims=0), model.classes_)
        graph.answer(answer, "probabilities", len(model.task.classes))
    given = [
        helper.make_tensor_value_info(
            name, TensorProto.DOUBLE if kind == "number" else TensorProto.STRING, ["batch", 1]
        )
        for name, kind in kinds.items()
    ]
    drawn = helper.make_graph(graph.nodes, "weft_auto", given, graph.outputs, graph.constants)
    opsets = [("", OPSET), ("ai.onnx.ml", ML_OPSET), (CONTRIB, 1)]
    made = helper.make_model(
        drawn,
        opset_imports=[helper.make_opsetid(*one) for one in opsets],
        producer_name="weft",
        ir_version=IR,
    )
    helper.set_model_props(made, _notes(model))
    if not any(node.domain == CONTRIB for node in graph.nodes):
        checker.check_model(made)
    return made


def _notes(model: AutoModel) -> dict[str, str]:
    return {
        "weft.auto.columns": json.dumps(model.kinds),
        "weft.auto.formats": json.dumps(
            {one.name: one.format for one in model.columns if one.used and one.format}
        ),
        "weft.auto.target": model.task.target,
        "weft.auto.metric": model.task.metric,
        "weft.auto.held_score": repr(model.score),
    }


def _weighted(graph: OnnxGraph, member: EnsembleMember, number: int, inputs: dict[str, str]) -> str:
    """Add a member: its features, its model's own graph with names of its own, and its weight."""
    from onnx import compose

    features = member.view.onnx(graph, inputs)
    weight = graph.constant(np.full(1, member.weight))
    if FAMILIES[member.model.family].package:
        found = dumped_trees(member.model).onnx(graph, features, member.model.classes)
        return graph.add("Mul", found, weight)
    if isinstance(member.model.estimator, DenseNetwork):
        found = member.model.estimator.onnx(graph, features, member.model.classes)
        return graph.add("Mul", found, weight)
    own = compose.add_prefix(estimator_to_onnx(member.model.estimator, dtype=np.float64), f"m{number}_")
    wanted = f"m{number}_prediction" if member.model.classes is None else f"m{number}_probabilities"
    graph.add("Identity", features, out=f"m{number}_X")
    graph.nodes.extend(own.graph.node)
    graph.constants.extend(own.graph.initializer)
    if member.model.classes is None:
        wanted = graph.add("Unsqueeze", wanted, graph.constant(np.array([1])))
    return graph.add("Mul", wanted, weight)


def feed_of(table: RawTable, kinds: dict[str, str]) -> dict[str, Array]:
    """Return raw columns as the graph takes them."""
    return {name: _fed(table[name])[:, None] for name in kinds}


def _fed(column: RawColumn) -> Array:
    if column.kind != "date":
        return column.values
    texts = np.empty(len(column.values), object)
    texts[:] = written(column.values, column.format)
    return texts


def check_parity(model: AutoModel, made: Any, table: RawTable) -> float:
    """Return the largest difference between the graph's answers and Python's; ParityError where it is too large."""
    import onnxruntime

    some = table.take(np.arange(min(COMPARED_ROWS, len(table))))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    name = "prediction" if model.task.classes is None else "probabilities"
    (found,) = session.run([name], feed_of(some, model.kinds))
    wanted = model.raw(some)
    gap = np.abs(found.reshape(wanted.shape) - wanted) / np.maximum(1.0, np.abs(wanted))
    worst = float(gap.max())
    close = CLOSE_SINGLE if any(one.model.family == "xgboost" for one in model.members) else CLOSE
    if not worst <= close:
        raise ParityError(
            f"the exported model must answer as the one in Python within {close:g}, got a difference of {worst:g}; "
            "no file is left: report it"
        )
    return worst
