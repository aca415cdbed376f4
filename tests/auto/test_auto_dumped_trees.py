"""Members of other packages become ONNX: their trees answer in the graph as in the package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.auto.data import import_family

from weft.auto.columns import Task
from weft.auto.dumped_trees import dumped_trees
from weft.auto.families.fitting import FitRequest, FittedModel, fit_model
from weft.auto.families.spaces import FAMILIES
from weft.learn.onnx import OnnxGraph

Array = np.ndarray[Any, Any]
TASKS = {None: Task("y", "rmse", None), 2: Task("y", "log_loss", (0, 1)), 3: Task("y", "log_loss", (0, 1, 2))}


def rows_with_holes(count: int = 400) -> Array:
    random = np.random.default_rng(0)
    rows = random.normal(size=(count, 4))
    rows[:, 3] = random.integers(0, 30, count)  # a category
    rows[random.random((count, 4)) < 0.1] = np.nan
    return rows


def answered(model: FittedModel, rows: Array) -> Array:
    import onnxruntime
    from onnx import TensorProto, helper

    graph = OnnxGraph(np.dtype(np.float64))
    found = dumped_trees(model).onnx(graph, "X", model.classes)
    given = helper.make_tensor_value_info("X", TensorProto.DOUBLE, ["batch", rows.shape[1]])
    wanted = helper.make_tensor_value_info(found, TensorProto.DOUBLE, ["batch", None])
    drawn = helper.make_graph(graph.nodes, "trees", [given], [wanted], graph.constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 5)]
    made = helper.make_model(drawn, opset_imports=opsets, ir_version=10).SerializeToString()
    (values,) = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"X": rows})
    return np.asarray(values)


@pytest.mark.parametrize("classes", [None, 2, 3])
@pytest.mark.parametrize(("family", "close"), [("lightgbm", 1e-9), ("xgboost", 1e-5), ("catboost", 1e-9)])
def test_the_graph_answers_as_the_package(
    family: str, close: float, classes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_family(family, monkeypatch)
    rows = rows_with_holes()
    score = np.nan_to_num(rows[:, 0]) * 2 + np.nan_to_num(rows[:, 3], nan=7) % 5
    target = score if classes is None else (score > 1).astype(int) + (classes == 3) * (score > 3)
    asked = FitRequest(FAMILIES[family].first, rows, target, TASKS[classes], (3,), rounds=25)
    model, _ = fit_model(family, asked)
    fresh = rows_with_holes(900)[400:]
    np.testing.assert_allclose(answered(model, fresh), model.predict(fresh), rtol=close, atol=close)
