"""Trees grown best leaf first: the same tree whichever way, and the one that a whole tree is cut back to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from tests.learn.data import classes

from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor
from weft.learn.trees.growth import growing
from weft.learn.trees.growth.grown import Grown, best_first

Array = np.ndarray[Any, Any]

SETTINGS: list[dict[str, Any]] = [
    {},
    {"min_samples_leaf": 1},
    {"min_samples_leaf": 1, "max_features": 3},
    {"max_features": 4, "subsample": 0.6},
    {"min_samples_leaf": 2, "max_depth": 4, "l2_regularization": 3.0},
]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the kernel of whole trees, which few small ones would do without."""
    monkeypatch.setattr("weft.learn.trees.growth.whole.is_worth_it", lambda *_, **__: True)


def test_few_trees_do_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(500)
    ours = GradientBoostingClassifier(n_estimators=2).fit(X, y)
    monkeypatch.setattr("weft.learn.trees.growth.whole.is_worth_it", lambda *_, **__: False)
    assert nodes_of(GradientBoostingClassifier(n_estimators=2).fit(X, y)) == nodes_of(ours)


def table(rows: int) -> tuple[Array, Array]:
    """Ten columns: numbers, numbers with gaps, few values, one value, nothing at all."""
    X, y = classes(rows, 6, 2, noise=1.0)
    random = np.random.default_rng(2)
    more = random.standard_normal((rows, 4))
    more[random.random(rows) < 0.4, 0] = np.nan
    more[:, 1], more[:, 2], more[:, 3] = np.round(more[:, 1]), 7.0, np.nan
    return np.column_stack([X, more]), y


def nodes_of(model: Any) -> list[Any]:
    return [
        (tree.feature.tolist(), tree.threshold.tolist(), tree.missing_left.tolist(), tree.rows.tolist())
        for each in model.trees_
        for tree in each
    ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_one_call_and_many_grow_one_tree(
    settings: dict[str, Any], weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = table(700)
    weights = np.random.default_rng(3).random(len(y)) + 0.5 if weighted else None
    options = {"n_estimators": 3, "max_leaf_nodes": 9, "random_state": 0, **settings}
    ours = GradientBoostingClassifier(**options).fit(X, y, weights)
    assert max(len(tree.left) for each in ours.trees_ for tree in each) == 17
    monkeypatch.setattr(growing, "can_grow_whole", lambda *_: False)
    other = GradientBoostingClassifier(**options).fit(X, y, weights)
    assert nodes_of(ours) == nodes_of(other)
    np.testing.assert_array_equal(ours.decision_function(X), other.decision_function(X))
    monkeypatch.setattr(growing, "BUDGET_BYTES", 1)  # no histogram is kept
    again = GradientBoostingClassifier(**options).fit(X, y, weights)
    assert nodes_of(ours) == nodes_of(again)


@pytest.mark.parametrize("least", [1, 20])
@pytest.mark.parametrize("thin", [False, True])
def test_it_is_the_whole_tree_cut_back(thin: bool, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X: Any
    X, y = table(1000)
    if thin:
        X = sparse.csr_matrix(
            np.where(np.random.default_rng(5).random(X.shape) < 0.15, np.nan_to_num(X), 0.0)
        )
    target = np.asarray(X[:, 0].todense() if thin else X[:, 0]).ravel() * 2 + y
    options: dict[str, Any] = {"n_estimators": 1, "min_samples_leaf": least}
    few = GradientBoostingRegressor(max_leaf_nodes=6, **options).fit(X, target)
    grow = growing.grow

    def cut_back(*args: Any, **more: Any) -> Grown:
        return best_first(grow(*args, **more), 6)

    monkeypatch.setattr("weft.learn.trees.boosted.rounds.grow", cut_back)
    whole = GradientBoostingRegressor(max_leaf_nodes=None, **options).fit(X, target)
    assert nodes_of(few) == nodes_of(whole)


def test_few_slots_for_histograms_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(1500)
    options: dict[str, Any] = {"n_estimators": 2, "max_leaf_nodes": 20, "random_state": 0}
    ours = GradientBoostingClassifier(**options).fit(X, y)
    monkeypatch.setattr("weft.learn.trees.growth.whole.BUDGET_BYTES", 1)
    assert nodes_of(GradientBoostingClassifier(**options).fit(X, y)) == nodes_of(ours)
    thin = sparse.csr_matrix(np.nan_to_num(X) * (np.random.default_rng(0).random(X.shape) < 0.1))
    monkeypatch.setattr("weft.learn.trees.growth.growing_stored.KEPT_BYTES", 1)
    dropped = GradientBoostingClassifier(**options).fit(thin, y)
    monkeypatch.setattr("weft.learn.trees.growth.growing_stored.KEPT_BYTES", 1 << 24)
    assert nodes_of(GradientBoostingClassifier(**options).fit(thin, y)) == nodes_of(dropped)


def test_signs_and_sets_hold_best_leaf_first() -> None:
    X, y = classes(1500, 4, 2)
    model = GradientBoostingClassifier(
        n_estimators=20, max_leaf_nodes=12, monotonic_cst=[1, 0, 0, 0], interaction_cst=[{0, 1}, {2, 3}]
    ).fit(X, y)
    up = np.repeat(X[:50], 20, axis=0)
    up[:, 0] = np.tile(np.linspace(-3, 3, 20), 50)
    scores = model.decision_function(up).reshape(50, 20)
    assert (np.diff(scores, axis=1) >= -1e-12).all()
    assert np.diff(scores, axis=1).max() > 0.1
    for each in model.trees_:
        for tree in each:
            used = set(tree.feature[tree.left >= 0].tolist())
            assert len(tree.left) <= 23
            assert used <= {0, 1} or used <= {2, 3}
