"""Snap ML's names for trees, forests and boosting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.learn.data import classes, numbers

from weft import learn
from weft.compat.snapml import (
    BoostingMachineClassifier,
    BoostingMachineRegressor,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)


def expected_failures(estimator: Any) -> dict[str, str]:
    """What scikit-learn expects of its own forests."""
    if not isinstance(estimator, RandomForestClassifier | RandomForestRegressor):
        return {}
    return {
        f"check_sample_weight_equivalence_on_{form}_data": "rows are drawn, not weighted"
        for form in ("dense", "sparse")
    }


@pytest.mark.checks
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        DecisionTreeClassifier(),
        DecisionTreeRegressor(),
        RandomForestClassifier(3),
        RandomForestRegressor(3),
        BoostingMachineClassifier(num_round=3),
        BoostingMachineRegressor(num_round=20),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_is_content(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_they_are_ours_under_other_names() -> None:
    X, y = classes()
    snap = DecisionTreeClassifier(max_depth=3, hist_nbins=256, random_state=0).fit(X, y)
    plain = learn.DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(snap.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(snap.feature_importances_, plain.feature_importances_)
    forest = RandomForestClassifier(n_estimators=4, max_features="auto", random_state=0).fit(X, y)
    same = learn.RandomForestClassifier(4, tree_method="exact", random_state=0).fit(X, y)
    np.testing.assert_array_equal(forest.predict(X), same.predict(X))


def test_boosting_draws_the_depth_of_each_tree() -> None:
    X, y = numbers()
    model = BoostingMachineRegressor(num_round=12, min_max_depth=1, max_max_depth=4).fit(X, y)
    assert {tree.get_depth() for tree in model.model_.estimators_.ravel()} == {1, 2, 3, 4}
    flat = BoostingMachineRegressor(num_round=3, max_depth=2).fit(X, y)
    assert {tree.get_depth() for tree in flat.model_.estimators_.ravel()} == {2}


def test_boosting_stops_on_the_rows_it_is_given() -> None:
    X, y = classes(400, noise=5.0)
    names = np.array(["no", "yes"])[y]
    model = BoostingMachineClassifier(num_round=300, early_stopping_rounds=5)
    model.fit(X[:300], names[:300], X_val=X[300:], y_val=names[300:])
    assert model.model_.n_estimators_ < 300
    with pytest.raises(ValueError, match=r"y_val must hold classes of y, got \['perhaps'\]"):
        model.fit(X, names, X_val=X[:1], y_val=["perhaps"])


def test_what_is_not_there_is_named() -> None:
    X, y = classes()
    with pytest.warns(UserWarning, match="runs on the CPU"):
        DecisionTreeClassifier(use_gpu=True).fit(X, y)
    with pytest.raises(ValueError, match=r"tree_select_probability must be one of 1.0, got 0.5"):
        BoostingMachineClassifier(tree_select_probability=0.5).fit(X, y)
