"""LinearRegression, Ridge, Lasso and ElasticNet against scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from tests.learn.data import elastic_objective, numbers, wide

from weft.learn import ElasticNet, Lasso, LinearRegression, Ridge


@settings(max_examples=40)
@given(
    rows=st.integers(2, 60),
    columns=st.integers(1, 40),
    alpha=st.sampled_from([0.001, 0.1, 2.0]),
    l1_ratio=st.sampled_from([0.1, 0.5, 1.0]),
    positive=st.booleans(),
    fit_intercept=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_elastic_net_is_within_tol_of_the_best(
    rows: int, columns: int, alpha: float, l1_ratio: float, positive: bool, fit_intercept: bool, seed: int
) -> None:
    X, y = numbers(rows, columns, seed)
    options: dict[str, Any] = {
        "alpha": alpha,
        "l1_ratio": l1_ratio,
        "positive": positive,
        "fit_intercept": fit_intercept,
    }
    ours = ElasticNet(tol=1e-6, **options).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the rival, on a few rows with many columns
        theirs = sklearn.linear_model.ElasticNet(tol=1e-10, max_iter=20_000, **options).fit(X, y)
    best = elastic_objective(theirs, X, y, alpha, l1_ratio)
    assert elastic_objective(ours, X, y, alpha, l1_ratio) <= best * (1 + 2e-6) + 1e-12
    assert ours.dual_gap_ <= 2e-6 * best + 1e-12


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize("shape", [(300, 20), (60, 300)])
def test_lasso_coefficients_are_scikit_learns(form: Any, shape: tuple[int, int]) -> None:
    X, y = numbers(*shape)
    ours = Lasso(alpha=0.1, tol=1e-10).fit(form(X), y)
    theirs = sklearn.linear_model.Lasso(alpha=0.1, tol=1e-12, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(form(X)), theirs.predict(X), atol=1e-5)
    assert np.count_nonzero(ours.coef_) == np.count_nonzero(theirs.coef_)


def test_a_lasso_of_many_columns_looks_at_few_of_them() -> None:
    X, y = wide(500, 5000)
    ours = Lasso(alpha=0.01, tol=1e-8).fit(X, y.astype(float))
    theirs = sklearn.linear_model.Lasso(alpha=0.01, tol=1e-12, max_iter=10_000).fit(
        X.toarray(), y.astype(float)
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.sparse_coef_.nnz < 100


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("shape", [(200, 12), (30, 80)])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [1.0, 50.0])
def test_ridge_is_scikit_learns(form: Any, shape: tuple[int, int], fit_intercept: bool, alpha: float) -> None:
    X, y = numbers(*shape)
    ours = Ridge(alpha, fit_intercept=fit_intercept).fit(form(X), y)
    theirs = sklearn.linear_model.Ridge(alpha, fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-9)


def test_ridge_by_conjugate_gradients_on_a_wide_sparse_table() -> None:
    X, y = wide(300, 6000)
    ours = Ridge(1.0, tol=1e-10).fit(X, y.astype(float))
    theirs = sklearn.linear_model.Ridge(1.0, solver="cholesky").fit(X.toarray(), y.astype(float))
    assert ours.solver_ == "cg"
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)


def test_several_targets_each_with_its_penalty() -> None:
    X, y = numbers()
    Y = np.stack([y, -2 * y, X[:, 0]], axis=1)
    alphas = [0.1, 5.0, 100.0]
    weights = np.random.default_rng(0).random(len(y))
    ours = Ridge(alphas).fit(X, Y, sample_weight=weights)
    theirs = sklearn.linear_model.Ridge(alphas).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(Lasso(0.1, tol=1e-9).fit(X, Y).coef_[0], Lasso(0.1, tol=1e-9).fit(X, y).coef_)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("shape", [(200, 12), (30, 80)])
def test_least_squares_are_scikit_learns(shape: tuple[int, int], positive: bool) -> None:
    X, y = numbers(*shape)
    ours = LinearRegression(positive=positive).fit(X, y)
    theirs = sklearn.linear_model.LinearRegression(positive=positive).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)
    if not positive:
        assert ours.rank_ == theirs.rank_
        np.testing.assert_allclose(ours.singular_, theirs.singular_, atol=1e-6)


def test_positive_ridge() -> None:
    X, y = numbers()
    ours = Ridge(positive=True, tol=1e-10).fit(X, y)
    theirs = sklearn.linear_model.Ridge(positive=True, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_columns_far_from_zero_lose_no_digits() -> None:
    X, y = numbers(400, 4)
    far = X + np.array([1e6, -2e5, 2000.0, 0.0])
    for model in (LinearRegression(), Ridge(1e-3), Lasso(1e-3, tol=1e-10)):
        near_coef = model.fit(X, y).coef_
        np.testing.assert_allclose(model.fit(far, y).coef_, near_coef, atol=1e-6)


def test_units_do_not_matter_to_least_squares() -> None:
    X, y = numbers(400, 4)
    units = np.array([1e-8, 1.0, 1e8, 1e3])
    np.testing.assert_allclose(
        LinearRegression().fit(X * units, y).coef_ * units, LinearRegression().fit(X, y).coef_, rtol=1e-6
    )


def test_dependent_columns_give_the_shortest_solution() -> None:
    X, y = numbers(100, 3)
    twice = np.hstack([X, X])
    coef = LinearRegression().fit(twice, y).coef_
    np.testing.assert_allclose(coef[:3], coef[3:], atol=1e-9)
    np.testing.assert_allclose(coef[:3] + coef[3:], LinearRegression().fit(X, y).coef_, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_rows_may_come_in_parts(form: Any, intercept: bool) -> None:
    X, y = numbers(300, 5)
    X = X + 1000
    weights = np.random.default_rng(1).random(300)
    parts = Ridge(0.5, fit_intercept=intercept)
    for rows in np.array_split(np.arange(300), 4):
        parts.partial_fit(form(X[rows]), y[rows], weights[rows])
    whole = Ridge(0.5, fit_intercept=intercept).fit(X, y, weights)
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-6)
    parts.fit(X[:50], y[:50])
    np.testing.assert_allclose(parts.coef_, Ridge(0.5, fit_intercept=intercept).fit(X[:50], y[:50]).coef_)
    plain = LinearRegression(fit_intercept=intercept)
    for rows in np.array_split(np.arange(300), 4):
        plain.partial_fit(form(X[rows]), y[rows], weights[rows])
    np.testing.assert_allclose(
        plain.predict(X), LinearRegression(fit_intercept=intercept).fit(X, y, weights).predict(X), rtol=1e-6
    )
    with pytest.raises(ValueError, match="must not go with positive=True"):
        Ridge(positive=True).partial_fit(X, y)
