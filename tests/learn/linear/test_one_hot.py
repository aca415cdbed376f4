"""One-hot tables: their groups of columns are found, and fitted in a few passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from tests.learn.data import logistic_objective

from weft.learn import LogisticRegression
from weft.learn.solvers.choice import ProblemShape, choose
from weft.learn.tables.one_hot import OneHotGroup, one_hot_groups

SIZES = (3, 40, 700, 900)


def codes(rows: int, sizes: tuple[int, ...] = SIZES, value: float = 1.0) -> Any:
    """A category for each size, as a block of one-hot columns."""
    random = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    indices = starts + (np.array(sizes) * random.random((rows, len(sizes))) ** 2).astype(np.int32)
    ends = np.arange(0, rows * len(sizes) + 1, len(sizes))
    return sparse.csr_matrix((np.full(indices.size, value), indices.ravel(), ends), (rows, sum(sizes)))


def test_groups_are_found_beside_columns_that_are_none() -> None:
    X = codes(3000, (2, 5), value=0.5)
    assert one_hot_groups(X) == [OneHotGroup(0, 2, 0.5), OneHotGroup(2, 7, 0.5)]
    numbers = sparse.csr_matrix(np.random.default_rng(0).random((3000, 1)) + 1)
    assert one_hot_groups(sparse.hstack([numbers, X], "csr")) == [
        OneHotGroup(1, 3, 0.5),
        OneHotGroup(3, 8, 0.5),
    ]
    shuffled = X[:, [0, 2, 1, 3, 4, 5, 6]]  # columns of the two lie among each other
    shuffled.sort_indices()
    assert one_hot_groups(shuffled) == []
    late = X.copy()
    late.data[-1] = 2.0
    assert one_hot_groups(late) == [OneHotGroup(0, 2, 0.5)]
    unequal = sparse.csr_matrix(np.tril(np.ones((9, 9))))
    for table in (unequal, sparse.csr_matrix((9, 9)), X[:0]):
        assert one_hot_groups(table) == []


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("intercept", [False, True])
def test_codes_take_few_passes(intercept: bool, classes: int) -> None:
    X = codes(6000)
    random = np.random.default_rng(1)
    scores = X @ random.standard_normal((X.shape[1], classes)) + random.gumbel(size=(6000, classes))
    y = scores.argmax(axis=1)
    settings: dict[str, Any] = {"fit_intercept": intercept, "random_state": 0}
    model = LogisticRegression(tol=1e-6, **settings).fit(X, y)
    exact = LogisticRegression(tol=1e-10, multi_class="multinomial", **settings).fit(X, y)
    assert model.n_iter_.max() < 20
    np.testing.assert_allclose(model.predict_proba(X), exact.predict_proba(X), atol=0.02)
    sums = [model.coef_[:, start:stop].sum(axis=1) for start, stop in ((0, 3), (3, 43), (43, 743))]
    np.testing.assert_allclose(sums[1:], [sums[0]] * 2, atol=1e-3 * np.abs(model.coef_).sum())
    if classes == 2:
        values = [logistic_objective(each, X, y) for each in (model, exact)]
        assert values[0] <= values[1] * (1 + 3e-6)


def test_many_rows_for_each_code_are_solved_by_passes() -> None:
    def chosen(rows: int, groups: int) -> str:
        return choose(ProblemShape(rows, 20_000, 12 * rows, sparse=True, groups=groups)).solver

    assert chosen(600_000, groups=12) == "lbfgs"
    assert chosen(600_000, groups=0) == chosen(30_000, groups=12) == "dual"
