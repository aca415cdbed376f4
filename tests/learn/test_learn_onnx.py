"""Exported models answer as the fitted ones do, run by ONNX Runtime."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnxruntime
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.learn.data import classes, numbers

from weft import learn
from weft.compat import snapml
from weft.learn.onnx import to_onnx

Array = np.ndarray[Any, Any]


def answers(model: Any, X: Array) -> dict[str, Array]:
    """What ONNX Runtime says of X, by the names of the outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(to_onnx(model, dtype=X.dtype).SerializeToString(), options)
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


def check_classifier(model: Any, X: Array, *, digits: float = 1e-6) -> None:
    got = answers(model, X)
    assert_array_equal(got["label"], model.predict(X))
    assert got["probabilities"].dtype == X.dtype
    assert_allclose(got["probabilities"], model.predict_proba(X), rtol=digits, atol=digits)


def check_regressor(model: Any, X: Array, *, digits: float = 1e-6) -> None:
    got = answers(model, X)
    assert got["prediction"].shape == model.predict(X).shape
    assert_allclose(got["prediction"], model.predict(X), rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("multi_class", ["multinomial", "ovr"])
def test_logistic_regression(dtype: Any, count: int, multi_class: str) -> None:
    X, y = classes(count=count)
    words = np.array(["alder", "birch", "cedar"])[y]
    model = learn.LogisticRegression(multi_class=multi_class).fit(X.astype(dtype), words)
    check_classifier(model, X.astype(dtype))
    check_classifier(model, X.astype(np.float32))  # others than those it was fitted to


def test_far_rows_of_separate_models_share_evenly() -> None:
    X, y = classes(count=3)
    model = learn.LogisticRegression(multi_class="ovr", C=1e6).fit(X, y)
    model.coef_, model.intercept_ = model.coef_ * 0, np.full(3, -1e4)
    check_classifier(model, X)


@pytest.mark.parametrize("count", [2, 3])
def test_support_vectors_tell_scores(count: int) -> None:
    X, y = classes(count=count)
    model = learn.LinearSVC().fit(X, y).sparsify()
    got = answers(model, X)
    assert_array_equal(got["label"], model.predict(X))
    assert_allclose(got["scores"].squeeze(), model.decision_function(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["LinearRegression", "Ridge", "Lasso", "ElasticNet"])
def test_linear_regressors(kind: str) -> None:
    X, y = numbers()
    check_regressor(getattr(learn, kind)().fit(X, y), X)
    check_regressor(getattr(learn, kind)().fit(X, np.column_stack([y, -y])), X.astype(np.float32))


def rough(rows: int = 400, *, count: int = 2) -> tuple[Array, Array]:
    """Rows with values on thresholds and missing ones."""
    X, y = classes(rows, 5, count)
    X = np.round(X, 1)
    X[::11, 2] = np.nan
    return X, y


@pytest.mark.parametrize("method", ["exact", "hist"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_trees_and_forests_that_tell_classes_apart(method: str, count: int) -> None:
    X, y = rough(count=count)
    flags = y == 1 if count == 2 else y
    for model in (
        learn.DecisionTreeClassifier(tree_method=method, random_state=0),
        learn.RandomForestClassifier(n_estimators=7, tree_method=method, max_depth=4, random_state=0),
    ):
        model.fit(X, flags)
        check_classifier(model, X)
        check_classifier(model, X.astype(np.float32))


def test_values_between_two_float32_go_the_way_that_trees_send_them() -> None:
    X = np.array([[1.0], [np.nextafter(np.float32(1), np.float32(2))], [1 + 1e-9], [1 + 1e-8]])
    model = learn.DecisionTreeClassifier().fit(X[:2], [0, 1])
    check_classifier(model, X)
    assert set(model.predict(X[2:])) == {0}


@pytest.mark.parametrize("method", ["exact", "hist"])
def test_trees_and_forests_of_numbers(method: str) -> None:
    X, y = rough()
    y = y + X[:, 0]
    check_regressor(learn.DecisionTreeRegressor(tree_method=method, max_depth=5).fit(X, y), X)
    check_regressor(learn.RandomForestRegressor(n_estimators=5, tree_method=method).fit(X, y), X)
    check_regressor(learn.DecisionTreeRegressor(max_depth=5).fit(X, np.column_stack([y, -y])), X)
    check_regressor(learn.DecisionTreeRegressor().fit(X, np.ones(len(X))), X)  # a leaf only


@pytest.mark.parametrize("loss", ["log_loss", "exponential"])
def test_boosting_that_tells_classes_apart(loss: str) -> None:
    X, y = rough()
    check_classifier(learn.GradientBoostingClassifier(loss=loss, n_estimators=10).fit(X, y), X)
    if loss == "log_loss":
        X, y = rough(count=3)
        check_classifier(learn.GradientBoostingClassifier(n_estimators=5, init="zero").fit(X, y), X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_boosting_of_numbers(dtype: Any) -> None:
    X, y = rough()
    check_regressor(learn.GradientBoostingRegressor(n_estimators=20).fit(X, y), X.astype(dtype))


def test_categories_known_unknown_and_missing() -> None:
    random = np.random.default_rng(0)
    X = np.column_stack([random.integers(0, 60, 2000), random.standard_normal(2000)]).astype(float)
    X[::17, 0] = np.nan
    effect = random.standard_normal(61)
    y = effect[np.nan_to_num(X[:, 0], nan=60).astype(int)] + 0.1 * X[:, 1]
    model = learn.GradientBoostingRegressor(categorical_features=[0], n_estimators=8, max_depth=4).fit(X, y)
    assert any(tree.sides for (tree,) in model.trees_)
    check_regressor(model, X)
    odd = np.column_stack([[-1, -0.5, 0.5, 61, 254, 254.5, 255, 1e9, np.inf, np.nan], np.zeros(10)])
    got = answers(model, odd)["prediction"]
    odd[np.isinf(odd)] = 1e9  # which predict refuses
    assert_allclose(got, model.predict(odd), rtol=1e-6)


def test_categories_of_a_frame_are_listed() -> None:
    trees = ["oak", "elm", "fir", "ash"] * 20
    frame = pandas.DataFrame({"tree": pandas.Categorical(trees), "size": np.arange(80.0)})
    y = np.array([1, 0, 0, 1] * 20)
    model = learn.GradientBoostingClassifier(n_estimators=3, min_samples_leaf=5).fit(frame, y)
    made = to_onnx(model)
    notes = {one.key: one.value for one in made.metadata_props}
    assert json.loads(notes["feature_names"]) == ["tree", "size"]
    listed = json.loads(notes["categories"])["0"]
    assert listed == ["ash", "elm", "fir", "oak"]
    codes = np.column_stack([[listed.index(one) for one in trees], frame["size"]])
    assert_array_equal(answers(model, codes)["label"], model.predict(frame))


def test_snap_ml_spellings() -> None:
    X, y = classes(count=3)
    check_classifier(snapml.LogisticRegression().fit(X, y), X)
    check_classifier(snapml.BoostingMachineClassifier(num_round=5).fit(X, y), X)
    check_regressor(snapml.LinearRegression().fit(X, X[:, 0]), X)


def test_what_cannot_be_exported_is_refused() -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import Ridge

    X, y = classes()
    with pytest.raises(NotFittedError):
        to_onnx(learn.Ridge())
    with pytest.raises(TypeError, match=r"estimator of weft\.learn, got Ridge"):
        to_onnx(Ridge().fit(X, y))
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got int64"):
        to_onnx(learn.Ridge().fit(X, y), dtype=np.int64)
    several = learn.DecisionTreeClassifier().fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="must have one target to become ONNX, got 2"):
        to_onnx(several)
