"""Forests: scikit-learn's own on small tables, on histograms no worse; trees as text and pictures."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn import ensemble as sk
from sklearn.inspection import partial_dependence
from tests.learn.data import classes, numbers

from weft.learn import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    export_svg,
    export_text,
)


def test_small_tables_have_scikit_learns_own_forest() -> None:
    X, y = classes(300, 6, 3)
    ours = RandomForestClassifier(5, random_state=0).fit(X, y)
    theirs = sk.RandomForestClassifier(5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(ours.predict_proba(X), theirs.predict_proba(X))


def test_forests_on_histograms_are_no_worse() -> None:
    X, y = classes(14_000, 9, 3)
    test, truth = X[11_000:], y[11_000:]
    settings: dict[str, Any] = {"n_estimators": 40, "random_state": 0, "max_depth": 8}
    ours = RandomForestClassifier(**settings, oob_score=True).fit(X[:11_000], y[:11_000])
    theirs = sk.RandomForestClassifier(**settings).fit(X[:11_000], y[:11_000])
    assert ours.score(test, truth) > theirs.score(test, truth) - 0.015
    assert abs(ours.oob_score_ - ours.score(test, truth)) < 0.05
    np.testing.assert_allclose(ours.feature_importances_, theirs.feature_importances_, atol=0.05)


def test_forests_of_numbers_on_histograms() -> None:
    X, y = numbers(11_500, 6)
    ours = RandomForestRegressor(4, random_state=0, min_samples_leaf=5).fit(X[:10_500], y[:10_500])
    theirs = sk.RandomForestRegressor(4, random_state=0, min_samples_leaf=5).fit(X[:10_500], y[:10_500])
    assert ours.score(X[10_500:], y[10_500:]) > theirs.score(X[10_500:], y[10_500:]) - 0.01
    assert min(tree.tree_.n_node_samples.min() for tree in ours.estimators_) >= 5


def test_threads_pickling_and_a_warm_start_change_nothing() -> None:
    X, y = classes(400, 6, 2)
    settings: dict[str, Any] = {"random_state": 1, "tree_method": "hist", "class_weight": "balanced"}
    one = RandomForestClassifier(6, n_jobs=1, **settings).fit(X, y)
    two = RandomForestClassifier(6, n_jobs=2, **settings).fit(X, y)
    grown = RandomForestClassifier(2, warm_start=True, **settings)
    with pytest.warns(UserWarning, match="not recommended for warm_start"):
        grown.fit(X, y).set_params(n_estimators=6).fit(X, y)
    for other in (two, grown, pickle.loads(pickle.dumps(one))):
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_every_node_draws_its_features() -> None:
    X, y = classes(600, 9, 2)
    trees = (
        RandomForestClassifier(20, random_state=0, tree_method="hist", max_features=1).fit(X, y).estimators_
    )
    roots = [tree.tree_.feature[0] for tree in trees]
    assert len(set(roots)) > 5
    X[:, 1:] = 0  # where the drawn feature cannot be cut, another is
    forest = RandomForestClassifier(5, random_state=0, tree_method="hist", max_features=1).fit(X, y)
    assert all(tree.tree_.feature[0] == 0 for tree in forest.estimators_)


def test_scikit_learns_tools_understand_our_trees() -> None:
    X, y = numbers(500, 4)
    model = DecisionTreeRegressor(tree_method="hist", max_depth=4).fit(X, y)
    quick = partial_dependence(model, X, [1], method="recursion", grid_resolution=10)
    plain = partial_dependence(model, X, [1], method="brute", grid_resolution=10)
    np.testing.assert_allclose(quick["average"], plain["average"], atol=0.2)
    assert "|--- feature_1 <=" in export_text(model)


def test_a_tree_draws_itself(tmp_path: Path) -> None:
    X, y = classes(500, 3, 2)
    model = DecisionTreeClassifier(tree_method="hist").fit(X, y)
    picture = export_svg(model, tmp_path / "tree.svg", feature_names=["a<b", "width", "depth"], max_depth=2)
    assert (tmp_path / "tree.svg").read_text() == picture
    boxes = ElementTree.fromstring(picture).findall("{http://www.w3.org/2000/svg}rect")
    assert len(boxes) == 7
    assert "a&lt;b ≤" in picture
    assert "500 rows" in picture
    with pytest.raises(ValueError, match="feature_names must be 3 names, got 1"):
        export_svg(model, feature_names=["one"])
