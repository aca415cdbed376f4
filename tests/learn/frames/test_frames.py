"""Estimators take frames of every library, with the target and the weights by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import weft.learn
from weft.errors import DataError, UsageError
from weft.learn.frames.kinds import library_of

ESTIMATORS = [
    "LogisticRegression",
    "LinearRegression",
    "Ridge",
    "Lasso",
    "ElasticNet",
    "LinearSVC",
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "RandomForestClassifier",
    "RandomForestRegressor",
]
FEATURES = ["a", "b", "c"]


def table(rows: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.standard_normal((rows, 3)), columns=FEATURES)
    return frame.assign(y=(frame["a"] + frame["b"] > 0).astype(int), w=1.0 + (frame["c"] > 0))


def duck(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("duckdb").from_df(frame)


def dask(frame: pd.DataFrame) -> Any:
    pytest.importorskip("dask").config.set(scheduler="synchronous")  # the threads of its pool never end
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)


KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "arrow": pa.Table.from_pandas,
    "duckdb": duck,
    "dask": dask,
}


def made(name: str) -> Any:
    model = getattr(weft.learn, name)()
    wanted = {"random_state": 0, "n_estimators": 3, "n_jobs": 1}
    return model.set_params(**{key: value for key, value in wanted.items() if key in model.get_params()})


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_takes_a_label_by_name(name: str) -> None:
    frame = table()
    plain = made(name).fit(frame[FEATURES], frame["y"])
    arrow = pa.Table.from_pandas(frame.drop(columns="w"))
    named = made(name).fit(arrow, label="y")
    assert list(named.feature_names_in_) == FEATURES
    np.testing.assert_array_equal(named.predict(arrow), plain.predict(frame[FEATURES]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_model(kind: str) -> None:
    frame = table()
    plain = made("LogisticRegression").fit(frame[FEATURES], frame["y"], sample_weight=frame["w"])
    named = made("LogisticRegression").fit(KINDS[kind](frame), "y", sample_weight="w")
    np.testing.assert_allclose(named.coef_, plain.coef_, rtol=1e-9)


@pytest.mark.parametrize("kind", ["arrow", "duckdb", "dask"])
def test_predictions_find_their_columns_in_a_frame_with_more(kind: str) -> None:
    frame = table()
    model = made("Ridge").fit(frame[FEATURES], frame["y"])
    shuffled = KINDS[kind](frame[["w", "c", "y", "a", "b"]])
    np.testing.assert_allclose(model.predict(shuffled), model.predict(frame[FEATURES]))


def test_targets_may_be_a_column_of_arrow() -> None:
    frame = table()
    X, y = pa.Table.from_pandas(frame[FEATURES]), pa.chunked_array([frame["y"].to_numpy()])
    plain = made("Ridge").fit(frame[FEATURES], frame["y"])
    np.testing.assert_allclose(made("Ridge").fit(X, y).coef_, plain.coef_)


def test_a_missing_label_names_the_columns_there_are() -> None:
    with pytest.raises(
        DataError, match="the label must be a column of the frame, got 'z'; its columns are a, b, c, y"
    ):
        made("Ridge").fit(table(), label="z")


def test_a_label_and_targets_at_once_are_refused() -> None:
    frame = table()
    with pytest.raises(UsageError, match="y or label=, got both"):
        made("Ridge").fit(frame, frame["y"], label="y")


def test_a_label_of_an_array_is_refused() -> None:
    with pytest.raises(UsageError, match="label= must come with a frame or with files, got ndarray"):
        made("Ridge").fit(np.ones((3, 2)), label="y")


def test_arrays_and_names_of_files_are_no_frames() -> None:
    assert [library_of(each) for each in (np.ones((2, 2)), [[1.0]], "a.parquet", None)] == [""] * 4
    assert library_of(pa.table({"a": [1]})) == "pyarrow"
