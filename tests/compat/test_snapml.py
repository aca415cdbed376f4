"""Scripts written for Snap ML find the names they know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.learn.data import classes, numbers

from weft import learn
from weft.compat.snapml import LinearRegression, LogisticRegression, SupportVectorMachine


def expected_failures(estimator: Any) -> dict[str, str]:
    """What Snap ML's defaults make impossible, and what scikit-learn's own LinearSVC cannot do either."""
    failures = {}
    if not isinstance(estimator, LinearRegression):
        failures["check_class_weight_classifiers"] = "without an intercept no plane has all rows on one side"
    if isinstance(estimator, SupportVectorMachine):
        for form in ("dense", "sparse"):
            failures[f"check_sample_weight_equivalence_on_{form}_data"] = "rows are visited in random order"
    return failures


@pytest.mark.checks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [LogisticRegression(), LinearRegression(), SupportVectorMachine()],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_is_content(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_the_example_of_the_slides_runs() -> None:
    X, y = classes()
    lr = LogisticRegression(device_ids=[0, 1])
    if torch.cuda.is_available():
        lr.fit(X, y)
    else:
        with pytest.warns(UserWarning, match="runs on the CPU: torch finds no GPU"):
            lr.fit(X, y)
        with pytest.warns(UserWarning, match="runs on the CPU: torch finds no GPU"):
            SupportVectorMachine(use_gpu=True).fit(X, y)
    assert log_loss(y, lr.predict_proba(X)) < 0.7


def test_a_regularizer_is_one_over_c_and_for_a_lasso_alpha_times_rows() -> None:
    X, y = classes()
    ours = LogisticRegression(regularizer=4.0, tol=1e-9, dual=True, n_jobs=1).fit(X, y)
    plain = learn.LogisticRegression(C=0.25, tol=1e-9, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(ours.coef_, plain.coef_)
    X, y = numbers()
    lasso = LinearRegression(regularizer=30.0, penalty="l1", tol=1e-9, fit_intercept=True).fit(X, y)
    np.testing.assert_allclose(lasso.coef_, learn.Lasso(0.1, tol=1e-9).fit(X, y).coef_)
    ridge = LinearRegression(regularizer=30.0, fit_intercept=True).fit(X, y)
    np.testing.assert_allclose(ridge.coef_, learn.Ridge(30.0).fit(X, y).coef_)


def test_training_history() -> None:
    X, y = classes()
    full = LogisticRegression(generate_training_history="full").fit(X, y).training_history_
    short = SupportVectorMachine(generate_training_history="summary", tol=0.01).fit(X, y).training_history_
    assert full is not None
    assert full["train_obj"] == sorted(full["train_obj"], reverse=True)
    assert short is not None
    assert len(short["train_obj"]) == 1
    assert LogisticRegression().fit(X, y).training_history_ is None


def test_what_is_not_there_is_named() -> None:
    X, y = classes()
    with pytest.raises(ValueError, match="kernel must be one of 'linear', got 'rbf'"):
        SupportVectorMachine(kernel="rbf").fit(X, y)
