"""SearchCV with what scikit-learn's searches take: lists of anything, distributions, pipelines, scorers, folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import weft.tune as tune
from weft.tune.space.candidates import CandidateSpace

X, Y = make_classification(n_samples=60, n_features=4, random_state=0)


def pipeline() -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())])


def test_steps_of_a_pipeline_are_choices() -> None:
    space = {
        "scale": [StandardScaler(), MinMaxScaler(), "passthrough", None],
        "model": [LogisticRegression(C=0.1), LogisticRegression(C=0.1), DecisionTreeClassifier(max_depth=2)],
    }
    search = tune.SearchCV(pipeline(), space, trials=6, cv=2, search="random").fit(X, Y)
    assert len(search.cv_results_["params"]) == 6
    assert search.best_params_["model"] in space["model"]
    assert list(clone(search).get_params()["space"]) == list(space)
    whole = tune.SearchCV(pipeline(), space, trials=12, cv=2).fit(X, Y)
    assert len({str(one) for one in whole.cv_results_["params"]}) == 8  # of equal text are two models


def test_distributions_of_scipy_are_domains() -> None:
    drawn: Any = stats.randint(1, 9)
    space = CandidateSpace(
        {"C": stats.loguniform(1e-3, 1e2), "a": stats.uniform(2, 3), "n": drawn, "e": stats.expon(scale=2)}
    )
    assert {name: one.text() for name, one in space.domains.items()} == {
        "C": "log:0.001:100.0",
        "a": "float:2.0:5.0",
        "n": "int:1:8",
        "e": "float:0.001:0.999",
    }
    assert space.params_of({"C": 1.0, "e": 0.5})["e"] == pytest.approx(2 * np.log(2))

    class Even:
        def rvs(self, random_state: int) -> int:
            return 2 * (random_state % 50)

    search = tune.SearchCV(
        DecisionTreeClassifier(),
        {"min_samples_split": stats.randint(2, 9), "random_state": Even()},
        trials=4,
        cv=2,
    ).fit(X, Y)
    assert all(one["random_state"] % 2 == 0 for one in search.cv_results_["params"])


def test_several_spaces_are_searched_as_one() -> None:
    spaces: list[dict[str, Any]] = [
        {"model": [LogisticRegression()], "model__C": "log:1e-3:1e3"},
        {"model": [DecisionTreeClassifier()], "model__max_depth": [1, 2, None]},
    ]
    search = tune.SearchCV(pipeline(), spaces, trials=14, cv=2, random_state=None).fit(X, Y)
    kinds = {type(one["model"]) for one in search.cv_results_["params"]}
    assert kinds == {LogisticRegression, DecisionTreeClassifier}
    assert CandidateSpace([{"a": [1, 2], "b": [3, 4]}, {"a": [5]}]).size == 5
    with pytest.raises(ValueError, match="space must map names to domains, or be a list of such mappings"):
        tune.SearchCV(pipeline(), [], trials=2).fit(X, Y)


@pytest.mark.parametrize("search", ["tpe", "grid", "random"])
def test_a_small_grid_is_tried_once(search: str) -> None:
    found = tune.SearchCV(LogisticRegression(), {"C": [0.1, 1.0, np.float64(10)]}, search=search, cv=2).fit(
        X, Y
    )
    assert sorted(one["C"] for one in found.cv_results_["params"]) == [0.1, 1.0, 10.0]
    plain = tune.SearchCV(LogisticRegression(), {}, cv=2).fit(X, Y)
    assert plain.cv_results_["params"] == [{}]


def test_all_points_are_judged_by_the_same_folds() -> None:
    given = tune.SearchCV(
        LogisticRegression(), {"max_iter": [100, 101, 102, 103]}, cv=KFold(3, shuffle=True), trials=4
    ).fit(X, Y)
    for fold in range(3):
        assert len(set(given.cv_results_[f"split{fold}_test_score"])) == 1
    once = (one for one in KFold(2).split(X))
    tune.SearchCV(LogisticRegression(), {"C": "log:1e-2:1e2"}, cv=once, trials=3).fit(X, Y)
    groups = np.arange(60) % 5
    tune.SearchCV(LogisticRegression(), {"C": [1, 2]}, cv=GroupKFold(5)).fit(X, Y, groups=groups)


def test_scorers_and_refits_are_scikit_learns() -> None:
    space = {"C": "log:1e-3:1e3"}
    scoring = {"auc": "roc_auc", "right": "accuracy"}

    def most(results: dict[str, Any]) -> int:
        return int(np.argmax(results["mean_test_right"]))

    for refit in ("auc", most, False):
        made = tune.SearchCV(LogisticRegression(), space, trials=3, cv=2, scoring=scoring, refit=refit).fit(
            X, Y
        )
        assert {"mean_test_auc", "mean_test_right"} <= made.cv_results_.keys()
        assert hasattr(made, "best_estimator_") == bool(refit)

    def judge(estimator: Any, x: Any, y: Any) -> dict[str, float]:
        return {"one": estimator.score(x, y), "two": 0.0}

    named = tune.SearchCV(LogisticRegression(), space, trials=2, cv=2, scoring=judge, refit="one").fit(X, Y)
    assert named.best_score_ == max(named.cv_results_["mean_test_one"])


def test_points_whose_fits_all_fail_are_left_out() -> None:
    with pytest.warns(Warning, match="1 points are left out: All the 2 fits failed"):
        search = tune.SearchCV(LogisticRegression(), {"C": [-1.0, 1.0]}, cv=2).fit(X, Y)
    assert [one["C"] for one in search.cv_results_["params"]] == [1.0]
    assert [trial.state for trial in search.study_.trials] == ["failed", "completed"]
    with pytest.warns(Warning, match="left out"), pytest.raises(ValueError, match="All the 2 fits failed"):
        tune.SearchCV(LogisticRegression(), {"C": [-1.0, -2.0]}, cv=2, trials=2).fit(X, Y)
    with pytest.raises(ValueError, match="The 'C' parameter"):
        tune.SearchCV(LogisticRegression(), {"C": [-1.0, 1.0]}, cv=2, error_score="raise").fit(X, Y)
