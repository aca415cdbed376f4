"""Coefficients by name, and their standard errors."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose
from scipy import stats
from tests.learn.data import classes, numbers

from weft import learn
from weft.cli.tables.learn import command
from weft.errors import UsageError

Array = np.ndarray[Any, Any]


def with_ones(X: Array) -> Array:
    return np.column_stack([X, np.ones(len(X))])


def errors(table: Any) -> Array:
    return np.array([one.error for one in table])


def test_least_squares_by_the_textbook() -> None:
    X, y = numbers()
    frame = pandas.DataFrame(X, columns=list("abcdefgh"))
    table = learn.coefficients(learn.LinearRegression().fit(frame, y), frame, y)
    design = with_ones(X)
    best, left, *_ = np.linalg.lstsq(design, y)
    freedom = len(y) - 9
    want = np.sqrt(left[0] / freedom * np.linalg.inv(design.T @ design).diagonal())
    assert [one.name for one in table] == [*"abcdefgh", "intercept"]
    assert_allclose([one.value for one in table], best, rtol=1e-8)
    assert_allclose(errors(table), want, rtol=1e-8)
    assert_allclose([one.p for one in table], 2 * stats.t(freedom).sf(np.abs(best / want)), atol=1e-10)
    assert_allclose([one.high - one.low for one in table], 2 * stats.t(freedom).ppf(0.975) * want, rtol=1e-8)


def test_a_weight_of_two_is_a_row_twice() -> None:
    X, y = numbers(60, 3)
    weights = np.arange(60) % 3 + 1.0
    again = np.repeat(np.arange(60), weights.astype(int))
    one = learn.LinearRegression().fit(X, y, weights)
    two = learn.LinearRegression().fit(X[again], y[again])
    assert_allclose(
        errors(learn.coefficients(one, X, y, weights)),
        errors(learn.coefficients(two, X[again], y[again])),
        rtol=1e-8,
    )


def test_ridge_of_two_targets_varies_as_its_samples_do() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((80, 3))
    noise = random.standard_normal((400, 80))
    truth = X @ [1.0, -2.0, 0.5]
    model = learn.Ridge(alpha=20.0)
    spread = np.std([model.fit(X, truth + 0.7 * one).coef_ for one in noise], axis=0)
    targets = truth[:, None] + 0.7 * noise[:2].T
    table = learn.coefficients(model.fit(X, targets), X, targets)
    assert [one.output for one in table] == [0] * 4 + [1] * 4
    # Each estimate of sigma has 76 degrees of freedom: a standard error of it is off by 8 %.
    assert_allclose(errors(table).reshape(2, 4)[:, :3], np.stack([spread, spread]), rtol=0.35)


def test_logistic_regression_by_its_information() -> None:
    X, y = classes()
    for l2, model in (
        (0.0, learn.LogisticRegression(penalty=None)),
        (4.0, learn.LogisticRegression(C=0.25)),
    ):
        table = learn.coefficients(model.set_params(tol=1e-10).fit(X, y), X, y)
        share = model.predict_proba(X)[:, 1]
        design = with_ones(X)
        information = design.T @ (design * (share * (1 - share))[:, None])
        inverse = np.linalg.inv(information + l2 * np.diag([1.0] * 8 + [0.0]))
        want = np.sqrt((inverse @ information @ inverse).diagonal())
        assert_allclose(errors(table), want, rtol=1e-6)


def test_two_classes_of_a_softmax_are_those_of_one_column() -> None:
    X, y = classes(count=3)
    model = learn.LogisticRegression(penalty=None, tol=1e-12).fit(X, y)
    table = learn.coefficients(model, X, y)
    assert [one.output for one in table[::9]] == [0, 1, 2]
    # Without a penalty the differences between classes are what is identified: check one by a change of base class.
    design = with_ones(X)
    shares = model.predict_proba(X)
    blocks = [
        [design.T @ (design * (shares[:, a] * ((a == b) - shares[:, b]))[:, None]) for b in (1, 2)]
        for a in (1, 2)
    ]
    spread = np.linalg.inv(np.block(blocks))
    # b_0 = -(d_1 + d_2) / 3 where d are the differences from class 0
    first = (spread[:9, :9] + spread[9:, 9:] + spread[:9, 9:] + spread[9:, :9]) / 9
    assert_allclose(errors(table)[:9], np.sqrt(first.diagonal()), rtol=1e-4)


def test_what_has_no_errors_is_said() -> None:
    X, y = classes()
    assert all(np.isnan(one.error) for one in learn.coefficients(learn.Lasso().fit(X, y)))
    for model in (learn.Lasso(), learn.LinearSVC(), learn.LogisticRegression(l1_ratio=1.0)):
        with pytest.raises(ValueError, match="standard errors must be of"):
            learn.coefficients(model.fit(X, y), X, y)
    with pytest.raises(TypeError, match="must be linear to have coefficients"):
        learn.coefficients(learn.DecisionTreeClassifier().fit(X, y))
    with pytest.raises(ValueError, match="y must come with X"):
        learn.coefficients(learn.Ridge().fit(X, y), X)


def explained(*args: Any) -> str:
    result = CliRunner().invoke(command, ["explain", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command(tmp_path: Path, own_cache: None) -> None:
    X, y = classes(400, 3)
    frame = pandas.DataFrame(X.astype(np.float32), columns=["age", "size", "rate"])
    frame.assign(y=y).to_parquet(tmp_path / "table.parquet")
    model = tmp_path / "model.pkl"
    model.write_bytes(pickle.dumps(learn.LogisticRegression().fit(frame, y)))
    assert "z or t" not in explained(model)
    assert "z or t" in explained(model, tmp_path / "table.parquet", "--target=y")
    told = json.loads(explained(model, "--json"))
    assert [one["name"] for one in told] == ["age", "size", "rate", "intercept"]
    assert told[0]["error"] is None
    model.write_bytes(pickle.dumps(learn.DecisionTreeClassifier(max_depth=2).fit(frame, y)))
    text = explained(model)
    assert "|---" in text
    assert {line.split()[0] for line in text.splitlines()[:3]} == {"age", "size", "rate"}
    with pytest.raises(UsageError, match="must be a pickled estimator"):
        explained(tmp_path / "table.parquet")
