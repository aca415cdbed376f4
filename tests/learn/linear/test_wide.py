"""Tables with fewer rows than columns: solved in the space of rows, to the optimum that scikit-learn finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as SkLogistic
from sklearn.linear_model import Ridge as SkRidge
from sklearn.svm import LinearSVC as SkLinearSVC

from weft.learn import LinearSVC, LogisticRegression, Ridge

Array = np.ndarray[Any, Any]


def table(
    rows: int = 80, columns: int = 600, *, alike: bool = False, far: float = 0.0
) -> tuple[Array, Array]:
    """Rows of white columns, or of columns that hang together."""
    random = np.random.default_rng(5)
    X = random.standard_normal((rows, columns))
    if alike:
        X = random.standard_normal((rows, 6)) @ random.standard_normal((6, columns)) + 0.2 * X
    return X + far, X[:, :3].sum(axis=1) + random.standard_normal(rows)


def logistic_value(model: Any, X: Array, y: Array, C: float = 1.0) -> float:
    sign = np.where(y == model.classes_[1], 1, -1)
    margins = X @ model.coef_[0] + model.intercept_[0]
    return float(C * np.logaddexp(0, -sign * margins).sum() + (model.coef_**2).sum() / 2)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logistic_regression_of_a_wide_table_reaches_the_optimum(
    alike: bool, intercept: bool, dtype: Any
) -> None:
    X, scores = table(alike=alike)
    X, y = X.astype(dtype), scores > 0
    ours = LogisticRegression(tol=1e-6, fit_intercept=intercept).fit(X, y)
    best = SkLogistic(tol=1e-10, fit_intercept=intercept, max_iter=10_000).fit(X.astype(np.float64), y)
    least = logistic_value(best, X, y)
    assert logistic_value(ours, X, y) <= least * (1 + 2e-6)
    assert len(ours.history_) <= 3  # most of the work needs no pass


@pytest.mark.parametrize("alike", [False, True])
def test_the_dual_of_long_rows_reaches_the_optimum_or_hands_over(alike: bool) -> None:
    X, scores = table(60, 3000, alike=alike)
    X, y = 10 * X, scores > 0
    ours = LogisticRegression(solver="dual", tol=1e-6, fit_intercept=False, random_state=0).fit(X, y)
    best = SkLogistic(tol=1e-10, fit_intercept=False, max_iter=10_000).fit(X, y)
    assert logistic_value(ours, X, y) <= logistic_value(best, X, y) * (1 + 2e-6)


def test_weights_classes_and_columns_far_from_zero_are_no_obstacle() -> None:
    X, scores = table(alike=True, far=300.0)
    y = np.digitize(scores, [-1.0, 1.0])
    weights = np.random.default_rng(0).random(len(y)) + 0.5
    ours = LogisticRegression(tol=1e-8, C=0.01, max_iter=1000).fit(X, y, sample_weight=weights)
    theirs = SkLogistic(tol=1e-10, C=0.01, max_iter=100_000).fit(X - 300.0, y, sample_weight=weights)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X - 300.0), atol=2e-3)


def test_the_penalised_intercept_of_a_squared_hinge() -> None:
    X, scores = table()
    ours = LinearSVC(loss="squared_hinge", tol=1e-9).fit(X, scores > 0)
    theirs = SkLinearSVC(loss="squared_hinge", dual=True, tol=1e-9, max_iter=100_000).fit(X, scores > 0)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_of_a_wide_table_is_scikit_learns(alike: bool, weighted: bool, intercept: bool) -> None:
    X, scores = table(alike=alike, far=50.0)
    y = np.column_stack([scores, 2 * scores + X[:, 0]])
    weights = np.random.default_rng(0).random(len(y)) + 0.5 if weighted else None
    alpha = [0.5, 2.0]
    ours = Ridge(alpha, tol=1e-12, fit_intercept=intercept).fit(X, y, sample_weight=weights)
    theirs = SkRidge(alpha, solver="cholesky", fit_intercept=intercept).fit(X, y, sample_weight=weights)
    assert ours.solver_ == "rows"
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_the_gap_of_a_wide_ridge_is_a_bound() -> None:
    X, y = table(300, 2000, alike=True)
    for tol in (1e-2, 1e-5, 1e-8):
        ours = Ridge(1.0, tol=tol).fit(X, y)
        best = SkRidge(1.0, solver="cholesky").fit(X, y)

        def value(model: Any) -> float:
            off = y - model.predict(X)
            return float(off @ off + model.coef_ @ model.coef_) / 2

        assert value(ours) - value(best) <= (ours.history_[-1].gap + 1e-10) * value(ours)
        assert ours.history_[-1].gap <= tol
