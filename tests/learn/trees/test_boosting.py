"""Boosting on histograms, beside scikit-learn's two kinds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from scipy import sparse
from sklearn import ensemble as sk
from sklearn.metrics import log_loss, mean_pinball_loss
from tests.learn.data import classes, numbers

from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor, export_text
from weft.learn.trees.boosted.losses import LogLoss, MultinomialDeviance

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("count", [2, 3])
def test_classes_no_worse_than_scikit_learns(count: int) -> None:
    X, y = classes(3000, 6, count)
    ours = GradientBoostingClassifier(n_estimators=30, l2_regularization=0.0).fit(X[:2000], y[:2000])
    theirs = sk.HistGradientBoostingClassifier(max_iter=30, early_stopping=False)
    theirs.fit(X[:2000], y[:2000])
    mine, other = (log_loss(y[2000:], model.predict_proba(X[2000:])) for model in (ours, theirs))
    assert mine < other * 1.01
    assert ours.score(X[2000:], y[2000:]) == (ours.predict(X[2000:]) == y[2000:]).mean()
    assert ours.train_score_.shape == (30,)
    assert (np.diff(ours.train_score_) < 0).all()


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", "quantile"])
def test_numbers_no_worse_than_scikit_learns(loss: str) -> None:
    X, y = numbers(3000, 5)
    settings: dict[str, Any] = {"loss": loss, "n_estimators": 40, "alpha": 0.8, "max_depth": 3}
    ours = GradientBoostingRegressor(min_samples_leaf=1, **settings).fit(X[:2000], y[:2000])
    theirs = sk.GradientBoostingRegressor(**settings).fit(X[:2000], y[:2000])
    alpha = {"quantile": 0.8}.get(loss, 0.5)
    mine, other = (mean_pinball_loss(y[2000:], m.predict(X[2000:]), alpha=alpha) for m in (ours, theirs))
    assert mine < other * 1.03


def test_the_first_tree_of_squares_is_a_regression_tree() -> None:
    from sklearn.tree import DecisionTreeRegressor
    from tests.learn.trees.walks import same_splits

    X, y = numbers(250, 4)
    ours = GradientBoostingRegressor(
        n_estimators=1, learning_rate=1.0, max_depth=3, min_samples_leaf=1, l2_regularization=0.0
    ).fit(X, y)
    exact = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), exact.predict(X), rtol=1e-6)
    as_tree = ours.estimators_[0, 0]
    np.testing.assert_allclose(as_tree.predict(X) + ours.start_[0], ours.predict(X), rtol=1e-6)
    assert "feature_" in export_text(as_tree)
    assert same_splits(exact.tree_, exact.tree_) > 0
    np.testing.assert_allclose(ours.feature_importances_, exact.feature_importances_, atol=1e-6)


def test_a_warm_start_goes_on_and_stages_are_told() -> None:
    X, y = classes(500, 5, 3)
    whole = GradientBoostingClassifier(n_estimators=6, random_state=0).fit(X, y)
    grown = GradientBoostingClassifier(n_estimators=2, random_state=0, warm_start=True).fit(X, y)
    grown.set_params(n_estimators=6).fit(X, y)
    np.testing.assert_allclose(grown.predict_proba(X), whole.predict_proba(X), rtol=1e-6)
    stages = list(whole.staged_predict_proba(X))
    assert len(stages) == 6
    np.testing.assert_allclose(stages[-1], whole.predict_proba(X))
    assert (list(whole.staged_predict(X))[-1] == whole.predict(X)).all()
    with pytest.raises(ValueError, match="n_estimators must be at least 6, which a warm start has, got 3"):
        grown.set_params(n_estimators=3).fit(X, y)


def test_it_stops_early_where_it_gains_nothing() -> None:
    X, y = classes(1000, 5, 2, noise=5.0)
    model = GradientBoostingClassifier(n_estimators=300, n_iter_no_change=3, random_state=0).fit(X, y)
    assert model.n_estimators_ == len(model.trees_) < 100
    seen: list[int] = []

    def enough(done: int, *_: Any) -> bool:
        seen.append(done)
        return done == 3

    stopped = GradientBoostingClassifier(n_estimators=9).fit(X, y, monitor=enough)
    assert seen == [0, 1, 2, 3]
    assert stopped.n_estimators_ == 4


def test_classes_are_grown_side_by_side_all_the_same() -> None:
    X, y = classes(600, 6, 4)
    one, two = (
        GradientBoostingClassifier(n_estimators=4, n_jobs=jobs, random_state=0, max_features=4).fit(X, y)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


@pytest.mark.parametrize(
    "settings", [{}, {"subsample": 0.5, "max_features": 3}, {"min_samples_leaf": 1}], ids=str
)
def test_threads_and_pickling_change_nothing(settings: dict[str, Any]) -> None:
    X, y = classes(2000, 12, 2)
    one, two = (
        GradientBoostingClassifier(n_estimators=5, n_jobs=jobs, random_state=0, **settings).fit(X, y)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(one.predict_proba(X), again.predict_proba(X))
    smallest = min(tree.rows.min() for each in one.trees_ for tree in each)
    assert smallest >= settings.get("min_samples_leaf", 20)


def test_leaves_can_be_few() -> None:
    X, y = numbers(800, 5)
    model = GradientBoostingRegressor(n_estimators=4, max_depth=None, max_leaf_nodes=6).fit(X, y)
    assert {int((tree.left < 0).sum()) for each in model.trees_ for tree in each} == {6}


def test_weights_are_as_good_as_repeating() -> None:
    X, y = classes(200, 4, 2)
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = GradientBoostingClassifier(n_estimators=5, min_samples_leaf=1).fit(X, y, counts)
    repeated = GradientBoostingClassifier(n_estimators=5, min_samples_leaf=1).fit(
        np.repeat(X, counts, axis=0), np.repeat(y, counts)
    )
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-3)


def test_steps_of_two_classes_are_those_of_their_log_odds() -> None:
    random = np.random.default_rng(0)
    raw = np.asfortranarray(random.normal(size=(50, 2)))
    y, weights = random.integers(0, 2, 50), random.uniform(0.5, 2.0, 50)
    first, second, loss = MultinomialDeviance(2).derivatives(raw, y, weights)
    odds = (raw[:, 1] - raw[:, 0])[:, None]
    one_first, one_second, one_loss = LogLoss().derivatives(odds, y.astype(float), weights)
    steps = first / second
    np.testing.assert_allclose(steps[:, 1] - steps[:, 0], (one_first / one_second)[:, 0])
    assert loss == pytest.approx(one_loss)
    assert (second <= MultinomialDeviance(2).curved * weights[:, None]).all()


@pytest.mark.parametrize("kind", [GradientBoostingClassifier, GradientBoostingRegressor])
def test_weights_that_sum_to_one_shrink_no_leaf_to_nothing(kind: type) -> None:
    X, y = classes(400, 4, 2)
    whole = kind(n_estimators=5).fit(X, y, np.ones(len(y)))
    light = kind(n_estimators=5).fit(X, y, np.full(len(y), 1 / len(y)))
    how = "predict_proba" if hasattr(whole, "predict_proba") else "predict"
    np.testing.assert_allclose(getattr(light, how)(X), getattr(whole, how)(X), rtol=1e-3)


def test_the_rate_grows_with_what_the_rows_tell() -> None:
    def rate(rows: int, **settings: Any) -> float:
        X = np.arange(rows, dtype=np.float64)[:, None]
        model = GradientBoostingRegressor(**{"n_estimators": 2, "max_depth": 1, **settings})
        found: float = model.fit(X, X[:, 0] % 7).learning_rate_
        return found

    assert rate(1_500) == 0.1
    assert 0.1 < rate(4_000) < 0.2
    assert rate(12_000) == 0.2
    assert rate(12_000, n_estimators=200) == rate(12_000, loss="absolute_error") == 0.1
    assert rate(12_000, learning_rate=0.03) == 0.03
    X = np.arange(12_000, dtype=np.float64)[:, None]
    light = GradientBoostingRegressor(n_estimators=1, max_depth=1).fit(X, X[:, 0] % 7, np.full(12_000, 1e-4))
    assert light.learning_rate_ == 0.2, "weights that sum to about one tell no less"
    rare = np.arange(30_000) % 100 == 0
    model = GradientBoostingClassifier(n_estimators=2).fit(np.arange(30_000)[:, None], rare)
    assert model.learning_rate_ == 0.1, "of a rare class few rows tell anything"
    first = model.learning_rate_ = 0.15
    model.set_params(n_estimators=3, warm_start=True).fit(np.arange(30_000)[:, None], rare)
    assert model.learning_rate_ == first, "a warm start goes on as it began"


@pytest.mark.parametrize("count", [2, 3])
def test_held_out_losses_are_those_of_the_first_rounds(count: int) -> None:
    X, y = classes(600, 4, count)
    settings: dict[str, Any] = {"n_estimators": 12, "n_iter_no_change": 12, "random_state": 0}
    model = GradientBoostingClassifier(**settings)

    def ends_at_eight(done: int, _model: Any, _locals: Any) -> bool:
        return done == 7

    model.fit(X[:400], y[:400], None, ends_at_eight, X_val=X[400:], y_val=y[400:])
    staged = list(model.staged_predict_proba(X[400:]))
    np.testing.assert_allclose(model.validation_loss_, [log_loss(y[400:], one) for one in staged])
    first = model.first_rounds(3)
    np.testing.assert_allclose(first.predict_proba(X), list(model.staged_predict_proba(X))[2])
    assert (first.n_estimators_, len(first.trees_), model.n_estimators_) == (3, 3, 8)
    np.testing.assert_array_equal(first.validation_loss_, model.validation_loss_[:3])
    with pytest.raises(ValueError, match="count must be between 1 and 8, got 9"):
        model.first_rounds(9)
    model.set_params(n_iter_no_change=None).fit(X, y)
    assert not hasattr(model, "validation_loss_"), "no rows were held out"


@pytest.mark.parametrize("rate", [None, True, -0.1, np.nan])
def test_a_learning_rate_is_a_number(rate: Any) -> None:
    with pytest.raises(ValueError, match="learning_rate must be a number at least 0, got"):
        GradientBoostingClassifier(learning_rate=rate).fit([[0.0], [1.0]], [0, 1])


def test_a_learning_rate_in_words_is_auto() -> None:
    with pytest.raises(ValueError, match="learning_rate must be a number at least 0 or 'auto', got 'fast'"):
        GradientBoostingClassifier(learning_rate="fast").fit([[0.0], [1.0]], [0, 1])


def test_missing_values_and_sparse_tables() -> None:
    X, y = classes(1500, 4, 2)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    model = GradientBoostingClassifier(n_estimators=20, l2_regularization=0.0).fit(X, y)
    theirs = sk.HistGradientBoostingClassifier(max_iter=20, early_stopping=False).fit(X, y)
    assert abs(log_loss(y, model.predict_proba(X)) - log_loss(y, theirs.predict_proba(X))) < 0.01
    full = np.nan_to_num(X)
    dense, thin = (
        GradientBoostingClassifier(n_estimators=3).fit(table, y) for table in (full, sparse.csr_matrix(full))
    )
    np.testing.assert_array_equal(dense.predict(full), thin.predict(sparse.csr_matrix(full)))


def shops(rows: int = 2000) -> tuple[pd.DataFrame, Array]:
    random = np.random.default_rng(0)
    towns = np.array([f"town {i}" for i in range(40)])
    town = random.integers(0, 40, rows)
    good = random.permutation(40) < 20  # no order of the names helps
    frame = pd.DataFrame({"size": random.random(rows), "town": pd.Categorical(towns[town])})
    return frame, (good[town] ^ (random.random(rows) < 0.05)).astype(int)


def test_categories_of_a_frame() -> None:
    frame, y = shops()
    model = GradientBoostingClassifier(n_estimators=5, max_depth=2).fit(frame, y)
    assert model.score(frame, y) > 0.93  # one cut finds the good towns
    other = frame.astype({"town": str}).replace("town 3", "nowhere")
    assert model.predict_proba(other).shape == (2000, 2)
    tidy = polars.DataFrame({"size": frame["size"].to_numpy(), "town": frame["town"].astype(str).tolist()})
    tidy = tidy.with_columns(polars.col("town").cast(polars.Categorical))
    np.testing.assert_array_equal(
        GradientBoostingClassifier(n_estimators=5, max_depth=2).fit(tidy, y).predict(tidy),
        model.predict(frame),
    )
    codes = np.column_stack([frame["size"], frame["town"].cat.codes])
    plain = GradientBoostingClassifier(n_estimators=5, max_depth=2, categorical_features=[1]).fit(codes, y)
    assert (plain.predict(codes) == model.predict(frame)).mean() > 0.99
    with pytest.raises(ValueError, match="categorical features; use predict"):
        _ = plain.estimators_


def test_rare_classes_of_many_rows_keep_their_rate() -> None:
    rows = 1 << 18  # derivatives are packed then, and the first ones of most rows rounded to nothing
    X = np.random.default_rng(0).random((rows, 2), dtype=np.float32)
    y = np.arange(rows) % (rows // 16) == 0
    model = GradientBoostingClassifier(n_estimators=10, max_depth=2, min_samples_leaf=rows // 8).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.2)


def test_what_cannot_be_meant_is_refused() -> None:
    X, y = classes(100, 3, 3)
    with pytest.raises(
        ValueError, match="loss='exponential' must have 2 classes, got 3; use loss='log_loss'"
    ):
        GradientBoostingClassifier(loss="exponential").fit(X, y)
    with pytest.raises(ValueError, match="subsample must be above 0 and at most 1, got 2"):
        GradientBoostingClassifier(subsample=2).fit(X, y)
    with pytest.raises(ValueError, match="categories must be whole numbers, got"):
        GradientBoostingClassifier(categorical_features=[0]).fit(X, y)
    with pytest.raises(ValueError, match="categorical_features must be between 0 and 2, got"):
        GradientBoostingClassifier(categorical_features=[7]).fit(X, y)
    with pytest.raises(ValueError, match="power must be between 1 and 2, got 3"):
        GradientBoostingRegressor(loss="tweedie", power=3).fit(X, y)
    with pytest.raises(ValueError, match="y must not be negative for this loss, got -1 in row 0"):
        GradientBoostingRegressor(loss="poisson").fit(X, np.full(len(y), -1.0))
    with pytest.raises(ValueError, match="y must be positive for this loss, got 0 in row"):
        GradientBoostingRegressor(loss="gamma").fit(X, y)
