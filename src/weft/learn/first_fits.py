"""Small fits of every estimator on tables of the types that people bring: between them they need every usual kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

Array = np.ndarray[Any, Any]
Fit = Callable[[], object]

ROWS = 5_000  # more than a node has that is finished depth first: trees are grown by level, too
MANY_ROWS = 24_000  # of 48 columns: more numbers than a table in float32 has that is widened
FEW: dict[str, Any] = {"n_estimators": 2, "random_state": 0}


def run_first_fits() -> None:
    """Run all of them, one after the other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rounds do not converge
        for fit in first_fits():
            fit()


def first_fits() -> Iterator[Fit]:
    """Yield the fits, by kind of table."""
    random = np.random.default_rng(0)
    X = random.standard_normal((ROWS, 12))
    number: Array = X[:, 0] * 2.0 + X[:, 1] + random.logistic(size=ROWS)
    large = random.standard_normal((MANY_ROWS, 48), dtype=np.float32)
    goal: Array = large[:, 0] * 2.0 + random.logistic(size=MANY_ROWS)
    rare = sparse.random(ROWS, 400, 0.02, "csr", random_state=0)
    full = sparse.random(MANY_ROWS, 400, 0.12, "csr", random_state=0, dtype=np.float32)
    yield from _linear_fits(X, number)
    yield from _linear_fits(large, goal)
    yield from _linear_fits(rare, number)
    yield from _linear_fits(full, goal)
    yield from _linear_fits(random.standard_normal((60, 900)), number[:60])
    yield from _tree_fits(X, number)
    yield from _boosting_fits(X, number)
    yield from _boosting_fits(rare, number)
    for other in (large, np.asfortranarray(X), np.asfortranarray(large), full):
        yield from _fits_of_another_type(other, number if len(number) == other.shape[0] else goal)


def _classes(number: Array) -> tuple[Array, Array]:
    return (number > 0).astype(int), np.digitize(number, [-1.0, 1.0])


def _linear_fits(X: Any, number: Array) -> Iterator[Fit]:
    from weft import learn

    two, three = _classes(number)
    weights = np.linspace(0.5, 1.5, X.shape[0])
    few: dict[str, Any] = {"max_iter": 5}
    yield lambda: learn.LogisticRegression(**few).fit(X, two)
    yield lambda: learn.LogisticRegression(fit_intercept=False, **few).fit(X, two)
    yield lambda: learn.LogisticRegression(l1_ratio=1.0, C=0.1, **few).fit(X, two)
    yield lambda: learn.LogisticRegression(**few).fit(X, two, weights)
    yield lambda: learn.LogisticRegression(**few).fit(X, three)
    for loss in ("hinge", "squared_hinge"):
        yield lambda loss=loss: learn.LinearSVC(loss=loss, **few).fit(X, two)  # type: ignore[misc]
    for model in (learn.LinearRegression(), learn.Ridge(), learn.Lasso(0.01), learn.ElasticNet(0.01)):
        yield lambda model=model: model.fit(X, number)  # type: ignore[misc]


def _tree_fits(X: Array, number: Array) -> Iterator[Fit]:
    from weft import learn

    two, three = _classes(number)
    weights = np.linspace(0.5, 1.5, len(X))
    for target in (two, three):
        for leaf in (1, 3):
            yield _predicted(learn.DecisionTreeClassifier(max_depth=8, min_samples_leaf=leaf), X, target)
        yield _predicted(learn.RandomForestClassifier(**FEW), X, target)
    for leaf in (1, 3):
        yield _predicted(learn.DecisionTreeRegressor(max_depth=8, min_samples_leaf=leaf), X, number)
    yield _predicted(learn.RandomForestRegressor(**FEW), X, number)
    yield _predicted(learn.DecisionTreeClassifier(max_depth=8), X, two, weights)
    yield _predicted(learn.DecisionTreeRegressor(max_depth=8), X, number, weights)


def _boosting_fits(X: Any, number: Array) -> Iterator[Fit]:
    from weft import learn

    two, three = _classes(number)
    weights = np.linspace(0.5, 1.5, X.shape[0])
    for leaf in (1, 20):
        options = {**FEW, "min_samples_leaf": leaf}
        for target in (two, three):
            yield _predicted(learn.GradientBoostingClassifier(**options), X, target)
        yield _predicted(learn.GradientBoostingRegressor(**options), X, number)
        yield _predicted(learn.GradientBoostingClassifier(**options), X, two, weights)
        yield _predicted(learn.GradientBoostingRegressor(**options), X, number, weights)
    for loss in ("absolute_error", "poisson"):
        yield _predicted(learn.GradientBoostingRegressor(loss=loss, **FEW), X, abs(number))
    if sparse.issparse(X):
        return
    yield lambda: learn.GradientBoostingRanker(**FEW).fit(X, three, np.arange(len(X)) // 50)
    kinds = np.array(X)
    kinds[::7, 0], kinds[:, 1] = np.nan, np.arange(len(X)) % 9
    yield _predicted(learn.GradientBoostingClassifier(categorical_features=[1], **FEW), kinds, two)
    yield _predicted(learn.GradientBoostingClassifier(subsample=0.5, **FEW), X, two)
    yield lambda: learn.shap_values(learn.GradientBoostingRegressor(**FEW).fit(X, number), X[:100])
    up = [1] + [0] * (X.shape[1] - 1)
    yield _predicted(learn.GradientBoostingRegressor(monotonic_cst=up, **FEW), X, number)


def _fits_of_another_type(X: Any, number: Array) -> Iterator[Fit]:
    """Yield fits of trees to rows of another type or order: past their codes it is the same."""
    from weft import learn

    if not sparse.issparse(X):
        yield _predicted(learn.DecisionTreeRegressor(max_depth=2), X, number)
    yield _predicted(learn.GradientBoostingRegressor(**FEW), X, number)


def _predicted(model: Any, X: Any, target: Array, weights: Array | None = None) -> Fit:
    return lambda: model.fit(X, target, weights).predict(X[:100])
