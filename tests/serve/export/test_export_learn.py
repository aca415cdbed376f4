"""Fitted estimators of weft.learn, exported and compared."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from weft.errors import ModelError, ParityError
from weft.learn import LinearRegression, LinearSVC, LogisticRegression
from weft.serve.card import Card, read_card
from weft.serve.export import export
from weft.serve.export.sources.loading import load_model

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def table() -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    rows = random.standard_normal((200, 5)).astype(np.float32)
    return rows, rows @ np.arange(5.0)


def run(path: Path, rows: Array) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": rows}), strict=True))


def test_a_classifier_takes_its_labels_along(tmp_path: Path, table: tuple[Array, Array]) -> None:
    rows, target = table
    names = np.where(target > 1, "high", np.where(target < -1, "low", "middle"))
    model = LogisticRegression().fit(rows, names)
    done = export(model, rows[:50], tmp_path / "m.onnx")
    assert read_card(done.path) == done.card
    assert (done.card.task, done.card.labels) == ("classify", ("high", "low", "middle"))
    assert done.parity.agreement == 1.0
    assert "torch" not in done.card.versions
    answer = run(done.path, rows)
    assert (answer["label"] == model.predict(rows)).all()
    np.testing.assert_allclose(answer["probabilities"], model.predict_proba(rows), atol=1e-5)


def test_a_regressor(tmp_path: Path, table: tuple[Array, Array]) -> None:
    rows, target = table
    model = LinearRegression().fit(rows, target)
    done = export(model, rows[:9], tmp_path / "m.onnx", card=Card(features=tuple("abcde")))
    assert (done.card.task, done.card.labels, done.card.features) == ("regress", (), tuple("abcde"))
    np.testing.assert_allclose(run(done.path, rows)["prediction"], model.predict(rows), atol=1e-4)


def test_a_classifier_without_probabilities(tmp_path: Path, table: tuple[Array, Array]) -> None:
    rows, target = table
    model = LinearSVC().fit(rows, target > 0)
    done = export(model, rows[:9], tmp_path / "m.onnx")
    assert (run(done.path, rows)["label"] == model.predict(rows)).all()
    assert done.card.labels == ("False", "True")


def test_an_estimator_that_changed_since_is_found_out(
    tmp_path: Path, table: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, target = table
    model = LinearRegression().fit(rows, target)
    before = model.predict
    monkeypatch.setattr(model, "predict", lambda given: before(given) + 0.5)
    with pytest.raises(ParityError, match=r"prediction\[\d+\] in a batch of 1: .* in the model"):
        export(model, rows[:9], tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_tables_of_another_breadth_are_told(tmp_path: Path, table: tuple[Array, Array]) -> None:
    rows, target = table
    model = LinearRegression().fit(rows, target)
    with pytest.raises(ModelError, match=r"rows of 5 columns, got the shape \[200, 4\]"):
        export(model, rows[:, :4], tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["pkl", "joblib"])
def test_a_pickled_estimator_is_loaded(tmp_path: Path, table: tuple[Array, Array], kind: str) -> None:
    import joblib

    model = LinearRegression().fit(*table)
    path = tmp_path / f"m.{kind}"
    path.write_bytes(pickle.dumps(model)) if kind == "pkl" else joblib.dump(model, path)
    assert load_model(str(path)).coef_.tolist() == model.coef_.tolist()


def test_what_is_no_estimator_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.pkl").write_text("a poem")
    with pytest.raises(ModelError, match="must be a pickled estimator"):
        load_model(str(tmp_path / "m.pkl"))
    with pytest.raises(ModelError, match="got nothing there"):
        load_model(str(tmp_path / "n.pkl"))
