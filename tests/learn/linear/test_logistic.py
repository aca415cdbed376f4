"""LogisticRegression against scikit-learn: never worse by more than tol, and equal where tol is tight."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.linear_model
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.linalg import LinAlgWarning
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from tests.learn.data import classes, logistic_objective, wide

from weft.learn import LogisticRegression
from weft.learn.inputs import checked_classes
from weft.learn.kernels import loss as loss_kernels


def best(X: Any, y: Any, **parameters: Any) -> Any:
    solver = "saga" if parameters.get("l1_ratio") else "lbfgs" if X.shape[1] > 1000 else "newton-cholesky"
    weights = parameters.pop("sample_weight", None)
    model = sklearn.linear_model.LogisticRegression(solver=solver, max_iter=100_000, tol=1e-9, **parameters)
    with warnings.catch_warnings():
        for rivals in ConvergenceWarning, LinAlgWarning:  # on columns of huge numbers, which it survives
            warnings.simplefilter("ignore", rivals)
        return model.fit(X, y, sample_weight=weights)


@settings(max_examples=40)
@given(
    rows=st.integers(4, 60),
    columns=st.integers(1, 12),
    count=st.integers(2, 4),
    C=st.sampled_from([0.01, 1.0, 30.0]),
    fit_intercept=st.booleans(),
    weighted=st.booleans(),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_the_objective_is_within_tol_of_the_best(
    rows: int,
    columns: int,
    count: int,
    C: float,
    fit_intercept: bool,
    weighted: bool,
    scale: float,
    seed: int,
) -> None:
    X, y = classes(rows, columns, count, seed)
    X *= scale
    weights = np.random.default_rng(seed).integers(1, 4, rows).astype(float) if weighted else None
    options: dict[str, Any] = {"C": C, "fit_intercept": fit_intercept}
    ours = LogisticRegression(tol=1e-6, **options).fit(X, y, sample_weight=weights)
    theirs = best(X, y, sample_weight=weights, **options)
    reached = logistic_objective(ours, X, y, C=C, weights=weights)
    assert reached <= logistic_objective(theirs, X, y, C=C, weights=weights) * (1 + 2e-6)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_are_scikit_learns(count: int, l1_ratio: float, fit_intercept: bool) -> None:
    X, y = classes(200, 6, count)
    options: dict[str, Any] = {"C": 0.5, "l1_ratio": l1_ratio, "fit_intercept": fit_intercept}
    ours = LogisticRegression(tol=1e-11, **options).fit(X, y)
    theirs = best(X, y, **options)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    assert ours.history_[-1].gap <= 1e-11


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "dual", "coordinate", "liblinear", "newton-cg"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_every_solver_finds_the_same_model(solver: str, fit_intercept: bool) -> None:
    X, y = classes(400, 10)
    ours = LogisticRegression(solver=solver, tol=1e-8, max_iter=1000, fit_intercept=fit_intercept).fit(X, y)
    theirs = best(X, y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)


@pytest.mark.parametrize(
    "form", [np.asfortranarray, sparse.csr_matrix, sparse.csc_array, pd.DataFrame, pl.DataFrame]
)
def test_every_form_of_a_table_gives_the_same_model(form: Any) -> None:
    X, y = classes()
    plain = LogisticRegression(tol=1e-9).fit(X, y)
    formed = LogisticRegression(tol=1e-9).fit(form(X), y)
    np.testing.assert_allclose(formed.coef_, plain.coef_, atol=1e-7)
    np.testing.assert_array_equal(formed.predict(form(X)), plain.predict(X))


def test_float32_is_kept_where_it_is_large_and_close_everywhere() -> None:
    X, y = classes(20_000, 60)
    wide_floats = LogisticRegression(tol=1e-6).fit(X, y)
    narrow = LogisticRegression(tol=1e-6).fit(X.astype(np.float32), y)
    assert narrow.coef_.dtype == np.float32
    np.testing.assert_allclose(narrow.coef_, wide_floats.coef_, atol=5e-3)


def test_a_tall_table_takes_a_few_passes_by_a_sample() -> None:
    X, y = classes(40_000, 20, noise=2.0)
    ours = LogisticRegression(tol=1e-5, random_state=0).fit(X, y)
    theirs = best(X, y)
    optimum = logistic_objective(theirs, X, y)
    assert ours.n_iter_[0] <= 5
    assert logistic_objective(ours, X, y) <= optimum * (1 + 1e-5)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_wide_sparse_tables_go_by_the_dual_and_keep_their_bound(n_jobs: int, fit_intercept: bool) -> None:
    X, y = wide()
    ours = LogisticRegression(tol=1e-5, n_jobs=n_jobs, fit_intercept=fit_intercept, random_state=0).fit(X, y)
    optimum = logistic_objective(best(X, y, fit_intercept=fit_intercept), X, y)
    assert logistic_objective(ours, X, y) <= optimum * (1 + 1e-5)
    again = LogisticRegression(tol=1e-5, n_jobs=n_jobs, fit_intercept=fit_intercept, random_state=0).fit(X, y)
    np.testing.assert_array_equal(ours.coef_, again.coef_)


def test_a_weak_penalty_is_handed_from_the_dual_to_quasi_newton_steps() -> None:
    X, y = wide(400, 1500)
    ours = LogisticRegression(C=300.0, tol=1e-5, max_iter=2000, random_state=0).fit(X, y)
    optimum = logistic_objective(best(X, y, C=300.0), X, y, C=300.0)
    assert logistic_objective(ours, X, y, C=300.0) <= optimum * (1 + 1e-4)


def test_passes_do_not_depend_on_the_number_of_threads() -> None:
    X, y = classes(30_000, 40)
    one, two = (LogisticRegression(n_jobs=n, random_state=0).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_one_against_the_rest() -> None:
    X, y = classes(count=3)
    ours = LogisticRegression(multi_class="ovr", tol=1e-10).fit(X, y)
    for k in range(3):
        alone = best(X, y == k)
        np.testing.assert_allclose(ours.coef_[k], alone.coef_[0], atol=1e-4)
    assert ours.n_iter_.shape == (3,)
    assert {step.output for step in ours.history_} == {0, 1, 2}
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1)


@pytest.mark.long
def test_many_classes_go_class_by_class() -> None:
    X, y = classes(1500, 300, 4, noise=3.0)
    ours = LogisticRegression(tol=1e-6).fit(X, y)  # 1204 unknowns: too many for one matrix
    optimum = logistic_objective(best(X, y), X, y)
    assert logistic_objective(ours, X, y) <= optimum * (1 + 1e-5)


def test_a_warm_start_is_there_at_once() -> None:
    X, y = classes()
    model = LogisticRegression(warm_start=True, tol=1e-8).fit(X, y)
    assert model.n_iter_[0] > 1
    assert model.fit(X, y).n_iter_[0] == 1


def test_class_weights_are_weights() -> None:
    X, y = classes()
    balanced = LogisticRegression(class_weight="balanced", tol=1e-10).fit(X, y)
    theirs = best(X, y, class_weight="balanced")
    np.testing.assert_allclose(balanced.coef_, theirs.coef_, atol=1e-4)
    by_hand = LogisticRegression(class_weight={0: 2.0}, tol=1e-10).fit(X, y)
    weighted = LogisticRegression(tol=1e-10).fit(X, y, sample_weight=np.where(y == 0, 2.0, 1.0))
    np.testing.assert_allclose(by_hand.coef_, weighted.coef_, atol=1e-9)


def test_it_says_when_it_did_not_get_there() -> None:
    X, y = classes()
    with pytest.warns(ConvergenceWarning, match=r"must fall to tol=1e-09, got .* after max_iter=2; raise"):
        model = LogisticRegression(tol=1e-9, max_iter=2).fit(X, y)
    assert model.history_[-1].gap > 1e-9


def test_separable_data_without_a_penalty_ends() -> None:
    X, y = classes(noise=0.0)
    model = LogisticRegression(C=np.inf).fit(X, y)
    assert model.score(X, y) == 1.0


def test_a_pickle_predicts_the_same() -> None:
    X, y = classes()
    model = LogisticRegression().fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_a_tall_table_is_read_a_few_times(dtype: Any, shift: float) -> None:
    X, y = classes(60_000, 20)
    X = (X + shift).astype(dtype)
    ours = LogisticRegression(tol=1e-6, random_state=0).fit(X, y)
    theirs = best(X.astype(np.float64), y)
    optimum = logistic_objective(theirs, X.astype(np.float64), y)
    assert logistic_objective(ours, X.astype(np.float64), y) <= optimum * (1 + 1e-6)
    assert ours.n_iter_[0] <= 5


@pytest.mark.long
def test_rows_in_order_of_their_class_make_no_difference_to_the_optimum() -> None:
    X, y = classes(220_000, 20)  # enough blocks for a step by a third of them
    order = np.argsort(y, kind="stable")
    ours = LogisticRegression(tol=1e-6, random_state=0).fit(X[order], y[order])
    assert logistic_objective(ours, X, y) <= logistic_objective(best(X, y), X, y) * (1 + 1e-6)


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint8, np.uint64, np.float64, "U3"])
@pytest.mark.parametrize("labels", [(0, 1), (1, 2), (3, 100, 101)])
def test_labels_of_many_rows(kind: Any, labels: tuple[int, ...]) -> None:
    y = np.random.default_rng(0).choice(labels, 20_000).astype(kind)
    kinds, codes = checked_classes(y)
    expected, places = np.unique(y, return_inverse=True)
    np.testing.assert_array_equal(kinds, expected)
    assert kinds.dtype == y.dtype
    np.testing.assert_array_equal(codes, places)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_and_slopes_have_the_digits_of_their_type(dtype: Any) -> None:
    spread = np.array([0, 1e-30, 1e-4, 0.1, 0.7, 1, 3, 17, 40, 86, 88, 300, 1e4])
    margins = np.concatenate([spread, -spread]).astype(dtype)
    y, weights, slope = np.ones_like(margins), np.ones_like(margins), np.empty_like(margins)
    each = np.array(
        [
            loss_kernels.logistic(margins[i : i + 1], y[:1], weights[:1], slope[i : i + 1])
            for i in range(len(y))
        ]
    )
    exact = margins.astype(np.float64)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(each, np.logaddexp(0, -exact), rtol=4 * eps, atol=1e-36)
    np.testing.assert_allclose(-slope, expit(-exact), rtol=8 * eps, atol=1e-36)
    assert np.isnan(loss_kernels.logistic(np.full(1, np.nan, dtype), y[:1], weights[:1], slope[:1]))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_jobs", [2, 4])
def test_threads_on_columns_that_all_rows_share_get_there_and_repeat_themselves(
    fit_intercept: bool, n_jobs: int
) -> None:
    X, y = wide(3000, 2000)
    X = sparse.hstack([X, sparse.csr_array(np.ones((3000, 3)))]).tocsr()  # what a thread's steps disturb most
    options: dict[str, Any] = {"tol": 1e-6, "fit_intercept": fit_intercept, "max_iter": 500}
    one, two = (
        LogisticRegression(dual=True, n_jobs=n_jobs, random_state=0, **options).fit(X, y) for _ in range(2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)
    optimum = logistic_objective(best(X, y, fit_intercept=fit_intercept), X, y)
    assert logistic_objective(one, X, y) <= optimum * (1 + 1e-6)


def test_rows_of_no_weight_are_as_if_they_were_not_there() -> None:
    X, y = classes(60_000, 5)
    weights = np.zeros(len(y))
    weights[-64:] = 1  # hardly any sample has one of them
    ours = LogisticRegression(tol=1e-8, random_state=0).fit(X, y, weights)
    few = LogisticRegression(tol=1e-8).fit(X[-64:], y[-64:])
    np.testing.assert_allclose(ours.coef_, few.coef_, atol=1e-3)


@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_an_l1_penalty_on_a_sparse_table(l1_ratio: float, fit_intercept: bool) -> None:
    random = np.random.default_rng(0)
    X = sparse.random_array((300, 400), density=0.05, rng=random, format="csr")
    y = (X @ random.normal(size=400) + 0.3 * random.normal(size=300) > 0.2).astype(int)
    options: dict[str, Any] = {"C": 2.0, "l1_ratio": l1_ratio, "fit_intercept": fit_intercept}
    ours = LogisticRegression(**options, tol=1e-12).fit(X, y)
    rival = best(X, y, **options)
    assert ours.coef_ == pytest.approx(rival.coef_, abs=1e-4)
    assert ours.intercept_ == pytest.approx(rival.intercept_, abs=1e-4)
    assert np.any(ours.coef_ == 0)


@pytest.mark.parametrize("C", [0.3, 10.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("paired", [True, False])
def test_an_l1_fit_of_a_sparse_table_ends_within_tol_of_the_least(
    C: float, fit_intercept: bool, paired: bool
) -> None:
    random = np.random.default_rng(1)
    X = sparse.random_array((1000, 300), density=0.05, rng=random, format="csr")
    if paired:  # columns that hang together make the descent slow
        X = sparse.csr_array(
            X[:, :150] @ sparse.random_array((150, 300), density=0.05, rng=random) + 0.01 * X
        )
    y = (X @ random.normal(size=300) + random.logistic(size=1000) > 0.2).astype(int)
    values = []
    for tol in (1e-3, 1e-5, 1e-11):
        model = LogisticRegression(
            l1_ratio=1.0, C=C, tol=tol, fit_intercept=fit_intercept, max_iter=5000
        ).fit(X, y)
        margins = X @ model.coef_[0] + model.intercept_
        values.append(
            np.logaddexp(0, np.where(y > 0, -margins, margins)).sum() + np.abs(model.coef_).sum() / C
        )
    assert values[0] <= values[2] * (1 + 1e-3)
    assert values[1] <= values[2] * (1 + 1e-5)
