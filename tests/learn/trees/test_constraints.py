"""Monotonic and interaction constraints of boosting, beside scikit-learn's histogram boosting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor

Array = np.ndarray[Any, Any]


def table(rows: int = 1500) -> tuple[Array, Array]:
    """The first column pulls up, the second down, both with waves; the third is free."""
    random = np.random.default_rng(3)
    X = random.random((rows, 3))
    waves = 0.4 * np.sin(25 * X[:, 0]) - 0.4 * np.cos(25 * X[:, 1])
    return X, 2 * X[:, 0] - 2 * X[:, 1] + waves + X[:, 2] ** 2 + 0.2 * random.standard_normal(rows)


def steps(model: Any, X: Array, column: int) -> Array:
    """How predictions change along a column, for some rows."""
    rows = np.repeat(X[:40], 50, axis=0)
    rows[:, column] = np.tile(np.linspace(0, 1, 50), 40)
    predict = model.decision_function if hasattr(model, "classes_") else model.predict
    return np.diff(predict(rows).reshape(40, 50), axis=1)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson"])
def test_predictions_turn_no_other_way(loss: str) -> None:
    X, y = table()
    y = y - y.min() + 0.1
    options: dict[str, Any] = {"loss": loss, "max_depth": 4, "n_estimators": 40}
    model = GradientBoostingRegressor(monotonic_cst=[1, -1, 0], **options).fit(X, y)
    assert steps(model, X, 0).min() >= -1e-12
    assert steps(model, X, 1).max() <= 1e-12
    free = GradientBoostingRegressor(**options).fit(X, y)
    assert steps(free, X, 0).min() < -1e-3  # the waves that constraints smooth away


def test_classes_missing_values_and_leaves_by_number() -> None:
    X, y = table()
    X[::11, 0] = np.nan
    model = GradientBoostingClassifier(monotonic_cst=[1, -1, 0], max_depth=6, max_leaf_nodes=8)
    model.fit(X, y > 0, sample_weight=np.linspace(0.5, 2, len(y)))
    full = np.nan_to_num(X)
    assert steps(model, full, 0).min() >= -1e-12
    assert steps(model, full, 1).max() <= 1e-12


def test_as_good_as_scikit_learn_under_the_same_constraints() -> None:
    X, y = table(3000)
    train, test = slice(0, 1500), slice(1500, None)
    ours = GradientBoostingRegressor(
        monotonic_cst=[1, -1, 0], max_depth=4, max_leaf_nodes=None, min_samples_leaf=1
    ).fit(X[train], y[train])
    theirs = HistGradientBoostingRegressor(
        monotonic_cst=[1, -1, 0], max_depth=4, max_leaf_nodes=None, min_samples_leaf=1, early_stopping=False
    )
    with threadpool_limits(1):
        theirs.fit(X[train], y[train])
    assert ours.score(X[test], y[test]) > theirs.score(X[test], y[test]) - 0.01


def test_columns_may_be_named() -> None:
    X, y = table(400)
    frame = pd.DataFrame(X, columns=["up", "down", "free"])
    named = GradientBoostingRegressor(monotonic_cst={"up": 1, "down": -1}).fit(frame, y)
    listed = GradientBoostingRegressor(monotonic_cst=[1, -1, 0]).fit(X, y)
    np.testing.assert_array_equal(named.predict(frame), listed.predict(X))


@pytest.mark.parametrize(
    ("asked", "sets"),
    [
        ("no_interactions", [{0}, {1}, {2}]),
        ("pairwise", [{0, 1}, {0, 2}, {1, 2}]),
        ([{0, 1}], [{0, 1}, {2}]),
        ([[0, 1], [1, 2]], [{0, 1}, {1, 2}]),
    ],
)
def test_features_of_a_path_are_of_one_set(asked: Any, sets: list[set[int]]) -> None:
    X, y = table(800)
    y = y + 5 * X[:, 0] * X[:, 1] * X[:, 2]
    model = GradientBoostingRegressor(interaction_cst=asked, max_depth=5, n_estimators=10).fit(X, y)
    paths = [path for each in model.trees_ for tree in each for path in paths_of(tree)]
    assert all(any(path <= one for one in sets) for path in paths)
    assert any(len(path) > 1 for path in paths) == any(len(one) > 1 for one in sets)


def paths_of(tree: Any, node: int = 0, met: frozenset[int] = frozenset()) -> list[set[int]]:
    if tree.left[node] < 0:
        return [set(met)]
    met = met | {int(tree.feature[node])}
    return paths_of(tree, tree.left[node], met) + paths_of(tree, tree.right[node], met)


def test_what_cannot_be_meant_is_said() -> None:
    X, y = table(100)
    with pytest.raises(ValueError, match="one number for each of 3 columns, got shape"):
        GradientBoostingRegressor(monotonic_cst=[1, 0]).fit(X, y)
    with pytest.raises(ValueError, match="must be -1, 0 or 1, got"):
        GradientBoostingRegressor(monotonic_cst=[1, 2, 0]).fit(X, y)
    with pytest.raises(ValueError, match="must have one output, got 3 classes"):
        GradientBoostingClassifier(monotonic_cst=[1, 0, 0]).fit(X, np.digitize(y, [-1, 1]))
    with pytest.raises(ValueError, match="must hold columns from 0 to 2"):
        GradientBoostingRegressor(interaction_cst=[{0, 7}]).fit(X, y)
    with pytest.raises(ValueError, match="'pairwise', 'no_interactions' or sets"):
        GradientBoostingRegressor(interaction_cst="all").fit(X, y)
    with pytest.raises(ValueError, match="must be 0 for categorical features, got 1 for column 2"):
        GradientBoostingRegressor(monotonic_cst=[0, 0, 1], categorical_features=[2]).fit(np.floor(9 * X), y)
