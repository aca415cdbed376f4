"""The network of tables: its derivatives, its answers in a graph, rows that are sparse, and fits side by side."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from scipy import sparse

from weft.auto.columns import Task
from weft.auto.families.fitting import Deadline, FitRequest, Judges, fit_model
from weft.auto.families.network import DenseNetwork, NetworkTraining
from weft.auto.families.spaces import FAMILIES
from weft.auto.search.crew import core_count, run_together, threads_each
from weft.auto.search.trials import fold_waves
from weft.auto.validation import loss_of
from weft.learn.onnx import IR, OPSET, OnnxGraph

Array = np.ndarray[Any, Any]
NUMBERS = Task("y", "rmse", None)
TASKS = {None: NUMBERS, 2: Task("y", "log_loss", (0, 1)), 4: Task("y", "log_loss", (0, 1, 2, 3))}
FIRST = FAMILIES["network"].first


def request(classes: int | None, rows: int = 240, **params: Any) -> FitRequest:
    random = np.random.default_rng(0)
    table = random.normal(size=(rows, 5))
    score = np.sin(2 * table[:, 0]) + table[:, 1] * table[:, 2]
    target = (
        score if classes is None else np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    )
    return FitRequest({**FIRST, **params}, table, target, TASKS[classes])


@pytest.mark.parametrize("classes", [None, 2, 4])
def test_gradients_are_the_derivatives_of_the_loss(classes: int | None) -> None:
    training = NetworkTraining(request(classes, 30, width=7))
    random = np.random.default_rng(1)
    training.layers = [np.asarray(random.normal(0, 0.4, one.shape)) for one in training.layers]
    rows, goals = training.rows.astype(float), training.goals.astype(float)

    def loss() -> float:
        scores = DenseNetwork(training.layers[:3], training.layers[3:]).scores(rows)
        if classes is None:
            return float(((scores - goals) ** 2).sum() / 2 / len(rows))
        shifted = scores - scores.max(axis=1, keepdims=True)
        shares = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return float(-(shares * goals).sum() / len(rows))

    gradients = training._gradients(rows, goals)
    for place, layer in enumerate(training.layers):
        where = tuple(random.integers(0, size) for size in layer.shape)
        kept, step = layer[where], 1e-5
        layer[where] = kept + step
        above = loss()
        layer[where] = kept - step
        slope = (above - loss()) / (2 * step)
        layer[where] = kept
        assert gradients[place][where] == pytest.approx(slope, abs=1e-5)


@pytest.mark.parametrize("classes", [None, 2, 4])
def test_the_graph_answers_as_the_network_and_it_learns(classes: int | None) -> None:
    asked = request(classes)
    judges = Judges(asked.rows[:60], asked.target[:60])
    inner = replace(asked, rows=asked.rows[60:], target=asked.target[60:], judges=judges)
    model, predicted = fit_model("network", inner)
    assert predicted is not None
    constant = (
        np.full((60, 1), inner.target.mean()) if classes is None else np.full((60, classes), 1.0 / classes)
    )
    metric = asked.task.metric
    assert loss_of(metric, judges.target, predicted) < 0.8 * loss_of(metric, judges.target, constant)
    graph = OnnxGraph(np.dtype(np.float64))
    found = model.estimator.onnx(graph, "X", classes)
    given = helper.make_tensor_value_info("X", TensorProto.DOUBLE, ["batch", 5])
    wanted = helper.make_tensor_value_info(found, TensorProto.DOUBLE, ["batch", None])
    drawn = helper.make_graph(graph.nodes, "network", [given], [wanted], graph.constants)
    made = helper.make_model(drawn, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (values,) = session.run(None, {"X": judges.rows})
    np.testing.assert_allclose(values, predicted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_sparse_rows_are_learned_as_dense_ones(dropout: float) -> None:
    asked = replace(request(None, dropout=dropout), rounds=3)
    dense, _ = fit_model("network", asked)
    thin, _ = fit_model("network", replace(asked, rows=sparse.csr_matrix(asked.rows)))
    np.testing.assert_allclose(
        thin.predict(sparse.csr_matrix(asked.rows)), dense.predict(asked.rows), rtol=1e-3, atol=1e-4
    )


def test_a_target_of_huge_numbers_does_not_break_it() -> None:
    asked = request(None)
    target = np.exp(6 * asked.target) * 1e9
    model, _ = fit_model("network", replace(asked, target=target, rounds=5))
    assert np.isfinite(model.predict(asked.rows)).all()


def test_fits_run_beside_each_other_in_the_order_that_was_asked() -> None:
    meeting = threading.Barrier(min(2, core_count()), timeout=60)

    def work(item: int, deadline: Deadline) -> int:
        meeting.wait()  # breaks unless as many run at once as there are cores
        return item * item

    items = list(range(2))
    assert run_together(work, items, [Deadline() for _ in items], 1) == [0, 1]


def test_an_interrupt_ends_the_fits_that_go_on() -> None:
    deadlines = [Deadline(), Deadline()]
    ended = threading.Event()

    def work(item: int, deadline: Deadline) -> None:
        if item == 0:
            raise KeyboardInterrupt
        while not deadline.over():
            ended.wait(0.001)

    with pytest.raises(KeyboardInterrupt):
        run_together(work, [0, 1], deadlines, 1)
    assert all(one.at_s == 0.0 for one in deadlines)


def test_folds_come_in_waves_and_small_tables_have_a_thread_each() -> None:
    assert [list(wave) for wave in fold_waves(5, 5, 2)] == [[0, 1], [2, 3], [4]]
    assert [list(wave) for wave in fold_waves(2, 2, 8)] == [[0, 1]]
    assert threads_each(1, 1000) == 1
    assert threads_each(1, 1 << 30) == core_count()
