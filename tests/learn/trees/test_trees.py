"""Trees on histograms are scikit-learn's exact ones where every value has its own bin."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import tree as sk
from sklearn.base import clone
from tests.learn.data import classes, numbers
from tests.learn.trees.walks import same_splits

from weft.learn import DecisionTreeClassifier, DecisionTreeRegressor

SETTINGS: list[dict[str, Any]] = [
    {},
    {"min_samples_leaf": 5},
    {"min_samples_split": 20, "max_depth": 4},
    {"max_leaf_nodes": 7},
    {"min_impurity_decrease": 0.01},
    {"min_weight_fraction_leaf": 0.05},
]


def weights_of(kind: str, rows: int) -> Any:
    random = np.random.default_rng(3)
    return {"none": None, "real": random.random(rows) + 0.1, "whole": random.integers(0, 3, rows)}[kind]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("weights", ["none", "real", "whole"])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize("count", [2, 4])
def test_classes_are_split_as_exactly(
    count: int, criterion: str, weights: str, settings: dict[str, Any]
) -> None:
    X, y = classes(250, 4, count)
    w = weights_of(weights, len(y))
    ours = DecisionTreeClassifier(criterion=criterion, tree_method="hist", **settings).fit(X, y, w)
    theirs = sk.DecisionTreeClassifier(criterion=criterion, random_state=0, **settings).fit(X, y, w)
    assert same_splits(ours.tree_, theirs.tree_) >= min(5, theirs.tree_.node_count)


@pytest.mark.parametrize("settings", [*SETTINGS, {"ccp_alpha": 0.01}], ids=str)
@pytest.mark.parametrize("weights", ["none", "real", "whole"])
def test_numbers_are_split_as_exactly(weights: str, settings: dict[str, Any]) -> None:
    X, y = numbers(250, 4)
    w = weights_of(weights, len(y))
    ours = DecisionTreeRegressor(tree_method="hist", **settings).fit(X, y, w)
    theirs = sk.DecisionTreeRegressor(random_state=0, **settings).fit(X, y, w)
    assert same_splits(ours.tree_, theirs.tree_) >= min(5, theirs.tree_.node_count)


@pytest.mark.parametrize("near", [0, 30])
def test_levels_and_depth_first_agree(near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree does not depend on where growing by level ends."""
    X, y = classes(250, 11, 3)
    whole = DecisionTreeClassifier(tree_method="hist").fit(X, y).tree_
    monkeypatch.setattr("weft.learn.trees.growth.growing.NEAR", near)
    ours = DecisionTreeClassifier(tree_method="hist").fit(X, y).tree_
    assert ours.__getstate__()["nodes"].tolist() == whole.__getstate__()["nodes"].tolist()


def test_small_tables_have_scikit_learns_own_tree() -> None:
    X, y = classes(300, 8, 3)
    ours = DecisionTreeClassifier(random_state=5, max_features=3).fit(X, y)
    theirs = sk.DecisionTreeClassifier(random_state=5, max_features=3).fit(X, y)
    assert (ours.tree_.__getstate__()["nodes"] == theirs.tree_.__getstate__()["nodes"]).all()


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_missing_values_go_where_they_serve(share: float) -> None:
    X, y = classes(250, 3, 2)
    X[np.random.default_rng(0).random(X.shape) < share] = np.nan
    ours = DecisionTreeClassifier(tree_method="hist", max_depth=5).fit(X, y)
    theirs = sk.DecisionTreeClassifier(max_depth=5, random_state=0).fit(X, y)
    assert same_splits(ours.tree_, theirs.tree_) >= 5


def test_large_tables_are_binned_and_no_worse() -> None:
    X, y = classes(30_000, 5, 2)
    test, truth = X[20_000:], y[20_000:]
    ours = DecisionTreeClassifier(max_depth=6).fit(X[:20_000], y[:20_000])
    theirs = sk.DecisionTreeClassifier(max_depth=6).fit(X[:20_000], y[:20_000])
    assert abs(ours.score(test, truth) - theirs.score(test, truth)) < 0.01
    few = DecisionTreeClassifier(max_depth=6, max_bins=4).fit(X[:20_000], y[:20_000])
    assert len(np.unique(few.tree_.threshold[few.tree_.feature == 0])) <= 3


def test_the_number_of_threads_changes_nothing() -> None:
    X, y = numbers(12_000, 10)
    one, two = (DecisionTreeRegressor(n_jobs=jobs, random_state=0).fit(X, y).tree_ for jobs in (1, 2))
    assert (one.__getstate__()["nodes"] == two.__getstate__()["nodes"]).all()


def test_types_orders_and_sparse_tables_give_one_tree() -> None:
    X, y = classes(400, 6, 2)
    X[np.abs(X) < 0.7] = 0
    X = X.astype(np.float32)
    tree = DecisionTreeClassifier(tree_method="hist")
    plain = clone(tree).fit(X, y).tree_.__getstate__()["nodes"]
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(6)])
    for other in (
        X.astype(np.float64),
        np.asfortranarray(X),
        sparse.csr_matrix(X),
        sparse.csc_array(X),
        frame,
    ):
        assert (clone(tree).fit(other, y).tree_.__getstate__()["nodes"] == plain).all()
    named = clone(tree).fit(frame, y)
    assert list(named.feature_names_in_) == list(frame.columns)
    again = pickle.loads(pickle.dumps(named))
    assert (again.predict(frame) == named.predict(frame)).all()


def test_bad_tables_are_named() -> None:
    X, y = classes(12_000, 3, 2)
    X[11_000, 2] = np.inf
    with pytest.raises(ValueError, match=r"infinity.*row 11000, column 2"):
        DecisionTreeClassifier().fit(X, y)
    with pytest.raises(
        ValueError, match="tree_method='hist' must have one output, got 2; use tree_method='auto'"
    ):
        DecisionTreeRegressor(tree_method="hist").fit(X[:100], np.ones((100, 2)))
    with pytest.raises(ValueError, match="must have splitter='best', got 'random'"):
        DecisionTreeClassifier(tree_method="hist", splitter="random").fit(X[:100], y[:100])
