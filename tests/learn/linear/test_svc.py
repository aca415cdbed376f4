"""LinearSVC against scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.svm
from tests.learn.data import classes, hinge_objective, wide

from weft.learn import LinearSVC


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("dual", ["auto", True])
@pytest.mark.parametrize("C", [0.05, 1.0])
def test_the_objective_is_within_tol_of_the_best(loss: str, dual: Any, C: float) -> None:
    X, y = classes(300, 10)
    ours = LinearSVC(loss=loss, dual=dual, C=C, tol=1e-4, random_state=0).fit(X, y)
    theirs = sklearn.svm.LinearSVC(loss=loss, dual=True, C=C, tol=1e-9, max_iter=1_000_000).fit(X, y)
    power = 1 if loss == "hinge" else 2
    best = hinge_objective(theirs, X, y, C=C, power=power)
    assert hinge_objective(ours, X, y, C=C, power=power) <= best * (1 + 1e-4)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_wide_sparse_tables(loss: str, n_jobs: int) -> None:
    X, y = wide()
    ours = LinearSVC(loss=loss, tol=1e-4, n_jobs=n_jobs, random_state=0).fit(X, y)
    theirs = sklearn.svm.LinearSVC(loss=loss, tol=1e-8, max_iter=100_000).fit(X, y)
    power = 1 if loss == "hinge" else 2
    best = hinge_objective(theirs, X, y, C=1.0, power=power)
    assert hinge_objective(ours, X, y, C=1.0, power=power) <= best * (1 + 1e-4)


@pytest.mark.parametrize("intercept_scaling", [1.0, 5.0])
def test_an_l1_penalty(intercept_scaling: float) -> None:
    X, y = classes(300, 10)
    options: dict[str, Any] = {
        "penalty": "l1",
        "dual": False,
        "C": 0.1,
        "intercept_scaling": intercept_scaling,
    }
    ours = LinearSVC(tol=1e-10, **options).fit(X, y)
    theirs = sklearn.svm.LinearSVC(tol=1e-10, max_iter=100_000, **options).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_several_classes_one_against_the_rest() -> None:
    X, y = classes(300, 6, 3)
    ours = LinearSVC(tol=1e-10).fit(X, y)
    theirs = sklearn.svm.LinearSVC(tol=1e-10, dual=False, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_what_does_not_go_together_is_refused() -> None:
    X, y = classes()
    with pytest.raises(ValueError, match="penalty='l1' must go with loss='squared_hinge'"):
        LinearSVC(penalty="l1", loss="hinge").fit(X, y)
    with pytest.raises(ValueError, match="multi_class must be one of 'ovr', got 'crammer_singer'"):
        LinearSVC(multi_class="crammer_singer").fit(X, y)
