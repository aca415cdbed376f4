"""Shapley values of trees, beside those found by trying every set of columns."""

from __future__ import annotations

from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from weft import learn

Array = np.ndarray[Any, Any]
COLUMNS = 5


def table(rows: int = 500) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, COLUMNS))
    return X, X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.1 * random.standard_normal(rows)


def expected(tree: Any, row: Array, known: frozenset[int], node: int = 0) -> float:
    """What a tree says of a row of which some columns are known, on average over the others by the rows of nodes."""
    if tree.left[node] < 0:
        return float(tree.value[node])
    feature, left, right = int(tree.feature[node]), int(tree.left[node]), int(tree.right[node])
    if feature in known:
        x = np.float32(row[feature])
        if np.isnan(x):
            to_left = tree.missing_left[node]
        elif node in tree.sides:
            to_left = tree.sides[node][int(x)]
        else:
            to_left = x <= tree.threshold[node]
        return expected(tree, row, known, left if to_left else right)
    parts = [tree.rows[child] * expected(tree, row, known, child) for child in (left, right)]
    return float(sum(parts) / tree.rows[node])


def by_all_sets(model: Any, row: Array) -> Array:
    values = np.zeros(COLUMNS)
    for (tree,) in model.trees_:
        for column in range(COLUMNS):
            others = [one for one in range(COLUMNS) if one != column]
            for size in range(COLUMNS):
                share = factorial(size) * factorial(COLUMNS - 1 - size) / factorial(COLUMNS)
                for some in map(frozenset, combinations(others, size)):
                    values[column] += share * (
                        expected(tree, row, some | {column}) - expected(tree, row, some)
                    )
    return values


def test_values_are_those_of_all_sets_of_columns() -> None:
    X, y = table()
    X[::7, 2] = np.nan
    X[:, 4] = np.arange(len(X)) % 6
    y = y + (X[:, 4] == 2)
    y[::7] = 1.0
    model = learn.GradientBoostingRegressor(n_estimators=4, max_depth=4, categorical_features=[4]).fit(X, y)
    assert any(tree.sides for (tree,) in model.trees_)
    values, base = learn.shap_values(model, X)
    for row in (0, 1, 7):
        np.testing.assert_allclose(values[row], by_all_sets(model, X[row]), atol=1e-12)
    np.testing.assert_allclose(base + values.sum(axis=1), model.predict(X), atol=1e-12)
    few, _ = learn.shap_values(model, X[:3])
    np.testing.assert_allclose(few, values[:3], atol=1e-12)


@pytest.mark.parametrize(
    ("model", "raw"),
    [
        (learn.GradientBoostingClassifier(n_estimators=5), "decision_function"),
        (learn.RandomForestClassifier(5, random_state=0), "predict_proba"),
        (learn.RandomForestClassifier(5, random_state=0, tree_method="hist"), "predict_proba"),
        (learn.DecisionTreeClassifier(max_depth=12), "predict_proba"),
    ],
)
def test_values_of_several_classes_add_up_to_each_output(model: Any, raw: str) -> None:
    X, y = table()
    model.fit(X, np.digitize(y, [-0.5, 0.5]))
    values, base = learn.shap_values(model, X[:100])
    assert values.shape == (100, COLUMNS, 3)
    np.testing.assert_allclose(base + values.sum(axis=1), getattr(model, raw)(X[:100]), atol=1e-12)


def test_values_of_two_classes_are_of_one_output_where_the_model_has_one() -> None:
    X, y = table()
    model = learn.GradientBoostingClassifier(n_estimators=5).fit(X, y > 0)
    values, base = learn.shap_values(model, X)
    np.testing.assert_allclose(base + values.sum(axis=1), model.decision_function(X), atol=1e-12)


def test_frames_sparse_tables_and_statistics_of_categories_are_explained() -> None:
    X, y = table(1000)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model: Any = learn.RandomForestRegressor(5, random_state=0).fit(frame, y)
    values, base = learn.shap_values(model, frame)
    np.testing.assert_allclose(base + values.sum(axis=1), model.predict(frame), atol=1e-12)
    model = learn.GradientBoostingRegressor(n_estimators=5).fit(sparse.csr_matrix(X), y)
    values, base = learn.shap_values(model, sparse.csr_matrix(X))
    np.testing.assert_allclose(base + values.sum(axis=1), model.predict(X), atol=1e-12)
    X[:, 4] = np.arange(len(X)) % 400
    three = np.digitize(y, [-0.5, 0.5])
    model = learn.GradientBoostingClassifier(n_estimators=5, categorical_features=[4]).fit(X, three)
    values, base = learn.shap_values(model, X)
    assert values.shape == (1000, COLUMNS, 3)
    np.testing.assert_allclose(base + values.sum(axis=1), model.decision_function(X), atol=1e-12)


def test_models_that_are_no_trees_are_refused() -> None:
    X, y = table()
    with pytest.raises(TypeError, match="must be a tree, forest or boosting"):
        learn.shap_values(learn.Ridge().fit(X, y), X)
    with pytest.raises(ValueError, match="must be of one target, got 2"):
        learn.shap_values(learn.DecisionTreeRegressor().fit(X, np.column_stack([y, y])), X)
