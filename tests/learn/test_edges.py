"""Data at the edge of what makes sense, and input that makes none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.learn.data import classes, numbers

from weft.learn import ElasticNet, Lasso, LinearRegression, LinearSVC, LogisticRegression, Ridge

CLASSIFIERS = [
    LogisticRegression(),
    LogisticRegression(l1_ratio=0.5),
    LogisticRegression(solver="dual", max_iter=1000),
    LinearSVC(),
    LinearSVC(loss="hinge", tol=1e-2),
]
REGRESSORS: list[Any] = [LinearRegression(), Ridge(), Lasso(0.01), ElasticNet(0.01), Ridge(positive=True)]


@pytest.mark.parametrize("model", CLASSIFIERS, ids=repr)
def test_constant_and_repeated_columns(model: Any) -> None:
    X, y = classes(200, 3)
    odd = np.hstack([X, np.zeros((200, 1)), np.full((200, 1), 7.0), X[:, :1]])
    fitted = model.fit(odd, y)
    assert np.isfinite(fitted.coef_).all()
    assert fitted.coef_[0, 3] == 0
    assert fitted.score(odd, y) > 0.7


@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_constant_and_repeated_columns_in_regression(model: Any) -> None:
    X, y = numbers(200, 3)
    odd = np.hstack([X, np.zeros((200, 1)), np.full((200, 1), 7.0), X[:, :1]])
    fitted = model.fit(odd, y)
    assert np.isfinite(fitted.coef_).all()
    assert fitted.score(odd, y) > 0


@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_one_row(model: Any) -> None:
    fitted = model.fit(np.ones((1, 3)), np.array([2.0]))
    np.testing.assert_allclose(fitted.predict(np.ones((1, 3))), 2.0, atol=1e-6)


@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_a_constant_target(model: Any) -> None:
    X, _ = numbers(50, 3)
    np.testing.assert_allclose(model.fit(X, np.full(50, 4.0)).predict(X), 4.0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_huge_and_tiny_scales(scale: float) -> None:
    X, y = classes(200, 3)
    penalty_free = LogisticRegression(C=np.inf, tol=1e-8)
    np.testing.assert_allclose(
        penalty_free.fit(X * scale, y).predict_proba(X * scale),
        penalty_free.fit(X, y).predict_proba(X),
        atol=1e-6,
    )


def test_a_million_columns() -> None:
    random = np.random.default_rng(0)
    X = sparse.random(200, 1_000_000, density=1e-5, format="csr", random_state=random)
    y = random.integers(0, 2, 200)
    assert LogisticRegression().fit(X, y).coef_.shape == (1, 1_000_000)


def test_weights_of_zero_are_rows_that_are_not_there() -> None:
    X, y = classes(100, 4)
    weights = np.ones(100)
    weights[60:] = 0
    for model in (LogisticRegression(tol=1e-9), LogisticRegression(solver="dual", tol=1e-9, max_iter=1000)):
        left = model.fit(X[:60], y[:60]).coef_
        np.testing.assert_allclose(model.fit(X, y, sample_weight=weights).coef_, left, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LogisticRegression(C=-1), "C must be a number above 0, got -1"),
        (LogisticRegression(tol=float("nan")), "tol must be a number at least 0"),
        (LogisticRegression(solver="best"), "solver must be one of 'auto', .*, got 'best'"),
        (LogisticRegression(l1_ratio=2.0), "l1_ratio must be between 0 and 1"),
        (LogisticRegression(l1_ratio=1.0, solver="newton"), "an L1 penalty must be left to solver='auto'"),
        (LogisticRegression(penalty=None, dual=True), "the dual solver must have an L2 penalty"),
        (LogisticRegression(max_iter=-1), "max_iter must be a whole number"),
        (LogisticRegression(class_weight="fair"), "class_weight must be 'balanced'"),
        (Lasso(-1.0), "alpha must be a number at least 0"),
        (Ridge([1.0, 2.0]), "alpha must be one number or one for each of 1 targets"),
    ],
    ids=str,
)
def test_parameters_that_make_no_sense(model: Any, message: str) -> None:
    X, y = classes()
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


@pytest.mark.parametrize("model", [LogisticRegression(), Ridge(), LinearSVC()], ids=repr)
def test_tables_that_make_no_sense(model: Any) -> None:
    X, y = classes()
    with pytest.raises(ValueError, match="sample_weight must not be negative, got -1 in row 3"):
        model.fit(X, y, sample_weight=np.where(np.arange(len(y)) == 3, -1.0, 1.0))
    bad = X.copy()
    bad[5, 2] = np.nan
    for table, column in (
        (bad, "2"),
        (bad.tolist(), "2"),
        (sparse.csc_array(bad), "2"),
        (pd.DataFrame(bad, columns=list("abcdefgh")), "'c'"),
        (pl.DataFrame(bad, schema=list("abcdefgh")), "'c'"),
    ):
        with pytest.raises(ValueError, match=f"^Input X contains NaN: row 5, column {column}$"):
            model.fit(table, y)
    odd = pd.DataFrame(bad).astype(object).where(pd.notna(pd.DataFrame(bad)), None)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.fit(odd, y)
    with pytest.raises(ValueError, match=r"^Input y contains infinity: row 7$"):
        model.fit(X, np.where(np.arange(len(y)) == 7, np.inf, y))


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        LogisticRegression(l1_ratio=1.0),
        LogisticRegression(solver="dual"),
        Ridge(),
        Ridge(solver="cg"),
        Ridge(0.0),
        LinearRegression(),
        Lasso(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_number_in_a_large_table_is_found(model: Any, bad: float) -> None:
    X = np.random.default_rng(0).standard_normal((40_000, 30))
    y = (X[:, 0] > 0).astype(int)
    X[31_234, 7] = bad
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        model.fit(X, y)


def test_one_class_is_none_to_tell_apart() -> None:
    X, _ = classes()
    with pytest.raises(ValueError, match="at least 2 classes to tell apart, got one class: 'a'"):
        LogisticRegression().fit(X, np.full(len(X), "a", dtype=object))


def test_pipelines_and_searches() -> None:
    X, y = classes()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [0.1, 1]}
    )
    assert search.fit(X, y).best_score_ > 0.5
