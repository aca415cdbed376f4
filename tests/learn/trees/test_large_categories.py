"""Columns of thousands of categories, and losses of positive numbers, in boosting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import log_loss, mean_gamma_deviance, mean_poisson_deviance, mean_tweedie_deviance
from threadpoolctl import threadpool_limits

from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor
from weft.learn.trees.boosted.statistics import DRAWN, ordered_statistics

Array = np.ndarray[Any, Any]


def table(rows: int = 6000, categories: int = 600) -> tuple[Array, Array]:
    """A column of categories, each with an effect of its own, and two of numbers."""
    random = np.random.default_rng(0)
    codes = (categories * random.random(rows) ** 2).astype(int)
    X = np.column_stack([codes, random.standard_normal((rows, 2))])
    scores = 1.5 * random.standard_normal(categories)[codes] + X[:, 1]
    return X, scores + random.logistic(size=rows)


def test_ordered_statistics_see_earlier_rows_alone() -> None:
    codes = np.array([[7.0], [9.0], [7.0], [7.0], [np.nan]])
    y, weights = np.array([[1.0], [0.0], [0.0], [1.0], [1.0]]), np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    found, statistics = ordered_statistics(codes, (0,), y, weights, np.random.RandomState(0))
    prior = float(np.average(y[:, 0], weights=weights))
    order = np.random.RandomState(0).permutation(5).tolist()
    for row in range(4):
        before = [i for i in order[: order.index(row)] if codes[i, 0] == codes[row, 0]]
        total = sum(weights[i] * y[i, 0] for i in before)
        assert found[row, 0] == pytest.approx((total + DRAWN * prior) / (weights[before].sum() + DRAWN))
    assert np.isnan(found[4, 0])
    new = statistics.applied(np.array([[7.0], [100.0], [np.nan]]))
    assert new[0, 0] == pytest.approx((2 + DRAWN * prior) / (4 + DRAWN))
    assert new[1, 0] == pytest.approx(prior)
    assert np.isnan(new[2, 0])


def test_categories_beat_their_numbers_on_other_rows() -> None:
    X, scores = table()
    train, test = slice(0, 4000), slice(4000, None)
    y = scores > 0
    names = X[:, 0].astype(int).astype(str)
    frame = pd.DataFrame({"c": pd.Categorical(names), "a": X[:, 1], "b": X[:, 2]})
    told = GradientBoostingClassifier(random_state=0, max_depth=3).fit(frame[train], y[train])
    plain = GradientBoostingClassifier(random_state=0, max_depth=3).fit(X[train], y[train])
    best = log_loss(y[test], told.predict_proba(frame[test]))
    assert best < log_loss(y[test], plain.predict_proba(X[test])) - 0.01
    numbers = GradientBoostingClassifier(random_state=0, max_depth=3, categorical_features=[0])
    numbers.fit(X[train], y[train])
    assert log_loss(y[test], numbers.predict_proba(X[test])) == pytest.approx(best, abs=0.02)
    assert told.feature_importances_.shape == (3,)
    assert told.feature_importances_.argmax() == 0


def test_several_classes_and_early_stopping() -> None:
    X, scores = table()
    y = np.digitize(scores, [-1, 1])
    model = GradientBoostingClassifier(
        categorical_features=[0], n_iter_no_change=3, n_estimators=60, random_state=0
    ).fit(X, y)
    assert model.feature_importances_.shape == (3,)
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.score(X, y) > 0.5
    with pytest.raises(ValueError, match="statistics of categories; use predict"):
        model.estimators_  # noqa: B018


@pytest.mark.parametrize(
    ("loss", "deviance"),
    [
        ("poisson", mean_poisson_deviance),
        ("gamma", mean_gamma_deviance),
        ("tweedie", lambda y, p: mean_tweedie_deviance(y, p, power=1.5)),
    ],
)
def test_losses_of_positive_numbers(loss: str, deviance: Any) -> None:
    random = np.random.default_rng(1)
    X = random.random((3000, 4))
    mean = np.exp(1 + X[:, 0] - 2 * X[:, 1] * X[:, 2])
    y = random.poisson(mean) if loss == "poisson" else random.gamma(2.0, mean / 2)
    y = np.where(random.random(len(y)) < 0.3, 0.0, y) if loss == "tweedie" else y
    train, test = slice(0, 2000), slice(2000, None)
    ours = GradientBoostingRegressor(loss=loss, max_depth=3).fit(X[train], y[train])
    predicted = ours.predict(X[test])
    assert (predicted > 0).all()
    constant = np.full(1000, y[train].mean())
    assert deviance(y[test], predicted) < 0.95 * deviance(y[test], constant)
    if loss != "tweedie":  # scikit-learn has none
        theirs = HistGradientBoostingRegressor(loss=loss, max_depth=3, early_stopping=False)
        with threadpool_limits(1):
            theirs.fit(X[train], y[train])
        assert deviance(y[test], predicted) < 1.03 * deviance(y[test], theirs.predict(X[test]))
