"""Workers that fit together, each on its own rows, end with the model that one would have found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.learn.data import classes, hinge_objective, logistic_objective, numbers, wide

from weft.errors import UsageError
from weft.learn import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ElasticNet,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    RandomForestClassifier,
    RandomForestRegressor,
    Ridge,
    together,
)

Array = np.ndarray[Any, Any]


class ThreadWorkers:
    """Workers that are threads of this process."""

    def __init__(self, rank: int, size: int, board: list[Any], barrier: threading.Barrier):
        self.rank, self.size, self._board, self._barrier = rank, size, board, barrier

    def gathered(self, thing: Any) -> list[Any]:
        self._board[self.rank] = thing
        self._barrier.wait(60)
        things = list(self._board)
        self._barrier.wait(60)
        return things

    def add(self, values: Array) -> None:
        values[...] = np.sum(self.gathered(values.copy()), axis=0)

    def largest(self, value: float) -> float:
        return float(max(self.gathered(value)))

    def give_up(self, fault: Any) -> None:
        self._barrier.abort()


def fitted(
    make: Callable[[], Any],
    X: Any,
    y: Array,
    size: int = 3,
    weights: Array | None = None,
    cuts: Sequence[int] = (),
) -> list[Any]:
    """The models of workers, each of which has every third row, or the rows between two of the cuts."""
    shares = [slice(rank, None, size) for rank in range(size)]
    if cuts:
        shares = [slice(*ends) for ends in pairwise([0, *cuts, len(y)])]
        size = len(shares)
    board, barrier = [None] * size, threading.Barrier(size)
    models: list[Any] = [None] * size

    def work(rank: int) -> None:
        try:
            with together(ThreadWorkers(rank, size, board, barrier)):
                mine = shares[rank]
                more = {} if weights is None else {"sample_weight": weights[mine]}
                models[rank] = make().fit(X[mine], y[mine], **more)
        except BaseException as error:
            models[rank] = error
            barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    for model in models:
        if isinstance(model, BaseException) and not isinstance(model, threading.BrokenBarrierError):
            raise model
    return models


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("rows", [300, 9000])
def test_logistic_regression(count: int, rows: int) -> None:
    X, y = classes(rows, 5, count)
    models = fitted(lambda: LogisticRegression(tol=1e-9, random_state=0, class_weight="balanced"), X, y)
    alone = LogisticRegression(tol=1e-9, class_weight="balanced").fit(X, y)
    for model in models:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_wide_sparse_table(intercept: bool, dtype: Any) -> None:
    X, y = wide(1500, 4000)
    X = X.astype(dtype)
    settings: dict[str, Any] = {"tol": 1e-6, "fit_intercept": intercept, "random_state": 0, "solver": "dual"}
    alone = LogisticRegression(**settings).fit(X, y)
    best = logistic_objective(alone, X, y)
    models = fitted(lambda: LogisticRegression(**settings), X, y, cuts=(200, 900, 900))
    again = fitted(lambda: LogisticRegression(**settings), X, y, cuts=(200, 900, 900))
    for model in models:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_array_equal(model.coef_, again[0].coef_)
        assert model.history_[-1].gap <= 1e-6
        assert model.history_[-1].objective == pytest.approx(logistic_objective(model, X, y), rel=1e-6)
        assert logistic_objective(model, X, y) == pytest.approx(best, rel=2e-6)
    settings |= {"solver": "auto", "tol": 1e-7}
    for model in fitted(lambda: LogisticRegression(**settings), X, y, cuts=(200, 900, 900)):
        assert logistic_objective(model, X, y) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_support_vectors_of_a_sparse_table(loss: str) -> None:
    X, y = wide(1500, 4000)
    settings: dict[str, Any] = {"C": 0.3, "loss": loss, "tol": 1e-3, "random_state": 0, "dual": True}
    alone = LinearSVC(**settings).fit(X, y)
    models = fitted(lambda: LinearSVC(**settings), X, y, cuts=(50, 800))
    power = 1 if loss == "hinge" else 2
    values = [hinge_objective(model, X, y, C=0.3, power=power) for model in (alone, *models)]
    np.testing.assert_allclose(values, values[0], rtol=2e-3)
    np.testing.assert_array_equal(models[1].coef_, models[2].coef_)
    assert models[0].history_[-1].gap <= 1e-3


def test_hinge_loss_of_a_dense_table() -> None:
    X, y = classes(600, 6, 3)
    models = fitted(lambda: LinearSVC(loss="hinge", C=0.1, tol=1e-4, random_state=0), X, y)
    alone = LinearSVC(loss="hinge", C=0.1, tol=1e-6, max_iter=10**5).fit(X, y)
    np.testing.assert_allclose(models[1].coef_, alone.coef_, atol=5e-2)
    np.testing.assert_allclose(models[1].intercept_, alone.intercept_, atol=5e-2)


def test_weights_and_several_classes_of_a_sparse_table() -> None:
    X, y = wide(2000, 3000)
    y = y + (np.asarray(X[:, :20].sum(axis=1)).ravel() > 0.5)
    weights = np.random.default_rng(3).random(len(y))
    weights[:500] = 0  # all that the first worker has
    settings: dict[str, Any] = {
        "multi_class": "ovr",
        "class_weight": "balanced",
        "tol": 1e-7,
        "solver": "dual",
    }
    alone = LogisticRegression(**settings).fit(X, y, weights)
    models = fitted(lambda: LogisticRegression(**settings), X, y, weights=weights, cuts=(500, 1200))
    for model in models:
        np.testing.assert_allclose(model.coef_, alone.coef_, atol=5e-3)
        np.testing.assert_allclose(model.intercept_, alone.intercept_, atol=5e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogisticRegression(tol=1e-9),
        lambda: LogisticRegression(tol=1e-9, solver="lbfgs", max_iter=1000),
        lambda: Ridge(2.0),
        lambda: Lasso(0.1, tol=1e-9),
    ],
)
def test_shares_that_are_empty_or_small(make: Callable[[], Any]) -> None:
    X, y = classes(7000, 5)
    models, alone = fitted(make, X, y, cuts=(0, 20, 6000)), make().fit(X, y)
    for model in models:
        np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="at least one row, got 0 sample"):
        fitted(make, X[:0], y[:0], cuts=(0,))
    with pytest.raises(ValueError, match="zero in every row of every worker"):
        fitted(make, X, y, weights=np.zeros(len(y)))


@pytest.mark.parametrize("make", [lambda: Ridge(2.0), LinearRegression])
def test_least_squares(make: Callable[[], Any]) -> None:
    X, y = numbers(400, 6)
    models = fitted(make, X + 100, y)
    np.testing.assert_allclose(models[2].coef_, make().fit(X + 100, y).coef_, rtol=1e-7)


@pytest.mark.parametrize("settings", [{}, {"min_samples_leaf": 4}, {"max_depth": 3}], ids=str)
def test_a_tree_is_the_same_split_for_split(settings: dict[str, Any]) -> None:
    X, y = classes(250, 5, 3)
    y[y == 2] = 7  # not every worker needs to see every class
    models = fitted(lambda: DecisionTreeClassifier(tree_method="hist", **settings), X, y)
    alone = DecisionTreeClassifier(tree_method="hist", **settings).fit(X, y)
    for model in models:
        assert (model.tree_.__getstate__()["nodes"] == alone.tree_.__getstate__()["nodes"]).all()
        np.testing.assert_allclose(model.tree_.value, alone.tree_.value)


def test_trees_of_numbers() -> None:
    X, y = numbers(250, 5)
    models = fitted(lambda: DecisionTreeRegressor(tree_method="hist", max_depth=5), X, y)
    alone = DecisionTreeRegressor(tree_method="hist", max_depth=5).fit(X, y)
    np.testing.assert_allclose(models[0].predict(X), alone.predict(X))


def test_forests() -> None:
    X, y = classes(600, 5, 3)
    y[:3] = 0
    y[y == 2] = 7
    X[0] = 50.0
    words = np.array([f"c{code}" for code in y], "U8")
    words[0] = "rare"  # one worker alone sees it
    models = fitted(lambda: RandomForestClassifier(9, max_depth=6, max_features=3, random_state=0), X, words)
    assert list(models[1].classes_) == ["c0", "c1", "c7", "rare"]
    for model in models[1:]:
        np.testing.assert_array_equal(model.predict_proba(X), models[0].predict_proba(X))
    alone = RandomForestClassifier(9, max_depth=6, max_features=3, tree_method="hist", random_state=0)
    alone.fit(X, words)
    assert models[0].score(X, words) > alone.score(X, words) - 0.1
    plain = fitted(lambda: RandomForestClassifier(1, bootstrap=False, max_features=None), X, words)[2]
    one = RandomForestClassifier(1, bootstrap=False, max_features=None, tree_method="hist").fit(X, words)
    np.testing.assert_allclose(plain.predict_proba(X), one.predict_proba(X))
    X, y = numbers(300, 4)
    of_numbers = fitted(lambda: RandomForestRegressor(9, max_depth=6, random_state=0), X, y)
    np.testing.assert_array_equal(of_numbers[0].predict(X), of_numbers[2].predict(X))
    assert of_numbers[0].score(X, y) > 0.6


@pytest.mark.parametrize("count", [2, 3])
def test_boosting(count: int) -> None:
    X, y = classes(240, 5, count)
    models = fitted(lambda: GradientBoostingClassifier(n_estimators=8, random_state=0), X, y)
    alone = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(X, y)
    for model in models:
        np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), rtol=1e-5)
    X, y = numbers(240, 5)
    number = fitted(lambda: GradientBoostingRegressor(n_estimators=8), X, y)[1]
    np.testing.assert_allclose(
        number.predict(X), GradientBoostingRegressor(n_estimators=8).fit(X, y).predict(X)
    )


def test_categories_that_one_worker_alone_has() -> None:
    X, y = numbers(240, 3)
    words = np.where(np.arange(240) % 3 == 0, "a", np.where(X[:, 0] > 0, "c", "b"))  # rank 0 has "a" only
    y = y + 3 * (words == "a") - 2 * (words == "c")
    frame = pd.DataFrame(X, columns=list("pqr")).assign(word=pd.Categorical(words))
    models = fitted(lambda: GradientBoostingRegressor(n_estimators=8), frame, y)
    alone = GradientBoostingRegressor(n_estimators=8).fit(frame, y)
    for model in models:
        np.testing.assert_allclose(model.predict(frame), alone.predict(frame))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lasso(0.1, tol=1e-9),
        lambda: ElasticNet(0.1, tol=1e-9, positive=True),
        lambda: Ridge(0.1, tol=1e-9),
    ],
)
def test_penalties_that_leave_columns_out(make: Callable[[], Any]) -> None:
    X, y = numbers(400, 12)
    models = fitted(make, X + 3, y)
    alone = make().fit(X + 3, y)
    for model in models:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model.intercept_, alone.intercept_, rtol=1e-4)


@pytest.mark.parametrize("count", [2, 3])
def test_l1_logistic_regression_and_squared_hinge(count: int) -> None:
    X, y = classes(600, 12, count)
    for make in (
        lambda: LogisticRegression(l1_ratio=1.0, C=0.05, tol=1e-9),
        lambda: LinearSVC(C=0.05, tol=1e-9),
        lambda: LinearSVC(C=0.05, penalty="l1", dual=False, tol=1e-9),
    ):
        models, alone = fitted(make, X, y), make().fit(X, y)
        np.testing.assert_allclose(models[2].coef_, alone.coef_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ridge(positive=True),
        lambda: RandomForestClassifier(oob_score=True),
        lambda: GradientBoostingRegressor(loss="huber"),
    ],
)
def test_what_needs_all_rows_at_one_place_is_refused(make: Callable[[], Any]) -> None:
    X, y = classes(60, 3)
    with pytest.raises(UsageError, match=r"must be fitted by one worker.*, got a fit inside together\(\)"):
        fitted(make, X, y)


def test_without_a_group_it_is_said_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"together\(\) must come after weft.init\(\)"), together():
        pass
