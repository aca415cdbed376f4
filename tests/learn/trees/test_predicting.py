"""Predictions from packed trees: what single trees say, added up; few rows at once, and many."""

from __future__ import annotations

import pickle
import time
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from weft import learn

Array = np.ndarray[Any, Any]


def table(rows: int = 3000) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, 9))
    return X, X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * random.standard_normal(rows)


def test_a_forest_predicts_as_scikit_learns_does() -> None:
    X, y = table()
    three = np.digitize(y, [-0.5, 0.5])
    ours: Any = learn.RandomForestClassifier(20, random_state=0).fit(X, three)
    theirs: Any = RandomForestClassifier(20, random_state=0).fit(X, three)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-12)
    assert (ours.predict(X) == theirs.predict(X)).all()
    ours = learn.RandomForestRegressor(20, random_state=0).fit(X, y)
    theirs = RandomForestRegressor(20, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-12)
    both = learn.RandomForestRegressor(5, random_state=0).fit(X, np.column_stack([y, y]))
    assert both.predict(X).shape == (3000, 2)
    some = sparse.csr_matrix(X)
    np.testing.assert_allclose(ours.predict(some), theirs.predict(some), atol=1e-12)


@pytest.mark.parametrize("depth", [1, 6, None])
def test_boosting_predicts_what_its_trees_say(depth: int | None) -> None:
    X, y = table()
    X[::5, 2] = np.nan
    model = learn.GradientBoostingRegressor(n_estimators=12, max_depth=depth).fit(X, y)
    told = model.start_[0] + sum(each[0].predict(X) for each in model.estimators_)
    np.testing.assert_allclose(model.predict(X), told, atol=1e-10)
    np.testing.assert_array_equal(list(model.staged_predict(X))[-1], model.predict(X))
    for rows in (1, 7, 8, 9, 2999):
        np.testing.assert_array_equal(model.predict(X[:rows]), model.predict(X)[:rows])
    for other in (X.astype(np.float32), np.asfortranarray(X), X[:, ::-1][:, ::-1]):
        np.testing.assert_allclose(model.predict(other), told, atol=1e-6)


def test_a_model_that_is_fitted_again_or_further_predicts_anew() -> None:
    X, y = table()
    model = learn.GradientBoostingRegressor(n_estimators=3, warm_start=True).fit(X, y)
    before = model.predict(X)
    assert np.ptp(model.set_params(n_estimators=6).fit(X, y).predict(X) - before) > 0.1
    copies = pickle.loads(pickle.dumps(model)), deepcopy(model)
    assert all((copy.predict(X) == model.predict(X)).all() for copy in copies)
    forest = learn.RandomForestRegressor(3, warm_start=True, random_state=0).fit(X, y)
    before = forest.predict(X)
    assert np.ptp(forest.set_params(n_estimators=6).fit(X, y).predict(X) - before) > 0.1


@pytest.mark.parametrize(
    "model",
    [
        learn.LogisticRegression(),
        learn.DecisionTreeClassifier(max_depth=6),
        learn.RandomForestClassifier(100, max_depth=6, random_state=0),
        learn.GradientBoostingClassifier(),
    ],
)
def test_one_row_takes_microseconds_and_is_still_checked(model: Any) -> None:
    X, y = table()
    model.fit(X, y > 0)
    row = X[4:5]
    np.testing.assert_allclose(model.predict_proba(row), model.predict_proba(X)[4:5], atol=1e-12)
    took = []
    for _ in range(200):
        began = time.perf_counter()
        model.predict_proba(row)
        took.append(time.perf_counter() - began)
    assert min(took) < 100e-6
    with pytest.raises(ValueError, match="has 8 features"):
        model.predict(row[:, :8])
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.where(row == row[0, 0], np.inf, row))


@pytest.mark.parametrize("rows", [1500, 12_000])
def test_rows_that_took_no_part_in_a_round_are_moved_as_the_model_predicts_them(rows: int) -> None:
    X, y = table(rows)
    X[::5, 2] = np.nan
    X[:, 3] = np.arange(rows) % 7
    three = np.digitize(y, [-0.5, 0.5])
    told: dict[str, Array] = {}

    def note(number: int, model: Any, state: dict[str, Array]) -> None:
        told["raw"] = state["raw"].copy()
        if len(told["raw"]) == rows:  # all of them are fitted
            np.testing.assert_array_equal(model.decision_function(X), told["raw"])
        assert len(model.trees_) == number + 1

    model = learn.GradientBoostingClassifier(n_estimators=9, subsample=0.3, random_state=0)
    np.testing.assert_array_equal(model.fit(X, three, monitor=note).decision_function(X), told["raw"])
    model.set_params(n_iter_no_change=5).fit(X, three, monitor=note)
