"""Boosting from the stored values of sparse tables: the trees of the dense table, without making one."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor
from weft.learn.kernels.compiling import scalar_kernel
from weft.learn.trees.kernels.split import PAIR, best_cut

Array = np.ndarray[Any, Any]


@scalar_kernel
def cut_found(
    entries: Any,
    count: int,
    missing: Any,
    total: Any,
    fields: Any,
    scales: Any,
    limits: Any,
    left: Any,
    right: Any,
) -> tuple[float, int, bool]:
    """`best_cut`, which only kernels can call."""
    return best_cut(entries, count, missing, total, fields, scales, limits, PAIR, left, right)


def table(rows: int = 3000, columns: int = 40, *, whole: bool = True) -> tuple[Any, Array]:
    """A tenth of the values is stored, of few distinct whole numbers or of many."""
    random = np.random.default_rng(2)
    X = random.standard_normal((rows, columns)) * 3
    X = np.rint(X) if whole else X
    X[random.random(X.shape) > 0.1] = 0
    y = X[:, 0] + 2 * (X[:, 1] > 0) - X[:, 2] * X[:, 3] + random.standard_normal(rows)
    return sparse.csr_matrix(X), y


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("leaf", [1, 20])
def test_trees_are_those_of_the_dense_table(depth: int, leaf: int) -> None:
    X, y = table()
    options: dict[str, Any] = {"max_depth": depth, "min_samples_leaf": leaf, "n_estimators": 15}
    stored = GradientBoostingRegressor(**options).fit(X, y)
    dense = GradientBoostingRegressor(**options).fit(X.toarray(), y)
    np.testing.assert_allclose(stored.predict(X), dense.predict(X.toarray()), rtol=1e-6)
    np.testing.assert_allclose(stored.predict(X), stored.predict(X.toarray()), rtol=1e-12)
    np.testing.assert_allclose(stored.train_score_, dense.train_score_, rtol=1e-6)


def test_missing_values_weights_and_classes() -> None:
    X, y = table()
    X.data[::7] = np.nan
    classes = np.digitize(y, [-1, 1])
    weights = np.random.default_rng(0).random(len(y))
    stored = GradientBoostingClassifier(n_estimators=8).fit(X, classes, sample_weight=weights)
    dense = GradientBoostingClassifier(n_estimators=8).fit(X.toarray(), classes, sample_weight=weights)
    np.testing.assert_allclose(stored.predict_proba(X), dense.predict_proba(X), atol=1e-6)


def test_many_distinct_values_lose_nothing_that_matters() -> None:
    X, y = table(6000, whole=False)
    train, test = slice(0, 4000), slice(4000, None)
    stored = GradientBoostingClassifier(max_depth=4).fit(X[train], y[train] > 1)
    dense = GradientBoostingClassifier(max_depth=4).fit(X[train].toarray(), y[train] > 1)
    ours, theirs = (roc_auc_score(y[test] > 1, each.decision_function(X[test])) for each in (stored, dense))
    assert ours > theirs - 0.01


def test_samples_of_rows_and_columns_and_early_stopping() -> None:
    X, y = table()
    model = GradientBoostingRegressor(
        subsample=0.5,
        max_features=0.3,
        n_iter_no_change=5,
        n_estimators=200,
        random_state=0,
        max_depth=3,
        min_samples_leaf=1,
    )
    model.fit(X, y)
    again = GradientBoostingRegressor(**model.get_params()).fit(X, y)
    assert model.score(X, y) > 0.5
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_memory_is_that_of_the_stored_values() -> None:
    X = sparse.random(20_000, 1_000, 0.005, "csr", random_state=0, dtype=np.float32)
    y = np.asarray(X[:, :5].sum(axis=1)).ravel()
    GradientBoostingRegressor(n_estimators=1).fit(X, y)  # compiles
    tracemalloc.start()
    GradientBoostingRegressor(n_estimators=3).fit(X, y).predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6  # as a dense table of float32 it has 80 MB


def test_an_infinite_value_is_named() -> None:
    X, y = table()
    X.data[5] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        GradientBoostingRegressor().fit(X, y)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("fewest", [0, 5, 40])
def test_a_cut_of_counted_rows_is_that_of_separate_words(fewest: int, missing: bool) -> None:
    random = np.random.default_rng(fewest)
    rows = random.integers(1, 9, 31)
    n, a = rows * random.integers(1, 200, 31), random.integers(-900, 900, 31)
    apart = np.stack([n, a, rows]).astype(np.int64)
    together = np.stack([(a << 31) + n, rows]).astype(np.int64)
    scales, limits = np.array([0.01, 0.02, 1.0]), np.array([fewest, 0.0, 0.5, 0.0, 0.0, 0.0])
    fields = {
        2: np.array([(0, 0, (1 << 31) - 1), (0, 31, -1), (1, 0, -1)]),
        3: np.array([(0, 0, -1), (1, 0, -1), (2, 0, -1)]),
    }
    found = []
    for words in (together, apart):
        lost = words[:, 30] if missing else 0 * words[:, 30]
        entries, total = np.ascontiguousarray(words[:, :30]), words[:, :30].sum(axis=1) + lost
        room = np.empty((2, len(words)), np.int64)
        found.append(cut_found(entries, 30, lost.copy(), total, fields[len(words)], scales, limits, *room))
    assert found[0][1] >= 0
    assert found[0] == pytest.approx(found[1])
