"""Estimators take frames of every library, with the target and the weights by name."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
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


def odd(name: str) -> tuple[pd.DataFrame, list[str]]:
    """Return a table with one column of a kind that needs care, and its features."""
    frame, rows = table(), np.arange(60)
    made: dict[str, Any] = {
        "whole numbers with holes": pd.array([None if row % 7 == 0 else row for row in rows], "Int64"),
        "booleans with holes": pd.array([None if row % 7 == 0 else row % 2 for row in rows], "boolean"),
        "Arrow's numbers": pd.array(rows.tolist(), "int64[pyarrow]"),
        "decimals": [Decimal(int(row)) / 4 for row in rows],
        "categories": pd.Categorical([f"k{row % 3}" for row in rows]),
        "text": [f"k{row % 3}" for row in rows],
        "digits in text": [str(row / 2) for row in rows],
        "dates": pd.date_range("2024-01-01", periods=60),
        "dates of a zone": pd.date_range("2024-01-01", periods=60, tz="Europe/Paris"),
        "durations": pd.to_timedelta(rows, unit="h"),
    }
    return frame.assign(c=made[name]), FEATURES


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
@pytest.mark.parametrize(
    "column",
    ["whole numbers with holes", "booleans with holes", "Arrow's numbers", "decimals", "digits in text"],
)
def test_numbers_of_every_kind_are_numbers(kind: str, column: str) -> None:
    frame, features = odd(column)
    numbers = frame[features].astype({"c": object})
    numbers = numbers.assign(c=[np.nan if value is pd.NA else float(value) for value in numbers["c"]])
    plain = made("GradientBoostingClassifier").fit(numbers, frame["y"])
    given = KINDS[kind](frame.drop(columns="w"))
    named = made("GradientBoostingClassifier").fit(given, label="y")
    np.testing.assert_array_equal(named.predict_proba(given), plain.predict_proba(numbers))


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
@pytest.mark.parametrize(
    ("column", "got"),
    [
        ("text", "text in 'c'; encode it"),
        ("categories", "categories in 'c'; encode it"),
        ("dates", "dates in 'c'; encode it"),
        ("dates of a zone", "dates in 'c'; encode it"),
        ("durations", "durations in 'c'; encode it"),
    ],
)
def test_columns_that_are_no_numbers_are_named(kind: str, column: str, got: str) -> None:
    frame, _ = odd(column)
    with pytest.raises(DataError, match=f"features of Ridge must be numbers, got {got} or drop it"):
        made("Ridge").fit(KINDS[kind](frame), label="y")
    if not column.startswith(("text", "categories")):
        with pytest.raises(DataError, match="features of GradientBoostingRegressor must be numbers"):
            made("GradientBoostingRegressor").fit(KINDS[kind](frame), label="y")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_text_is_categories_where_it_is_named(kind: str) -> None:
    frame, _ = odd("text")
    given = KINDS[kind](frame.drop(columns="w"))
    with pytest.raises(DataError, match=r"got text in 'c'; write categorical_features=\['c'\] or drop it"):
        made("GradientBoostingRegressor").fit(given, label="y")
    by_type = made("GradientBoostingRegressor").fit(frame[FEATURES].astype({"c": "category"}), frame["y"])
    named = made("GradientBoostingRegressor").set_params(categorical_features=["c"]).fit(given, label="y")
    np.testing.assert_allclose(
        named.predict(given), by_type.predict(frame[FEATURES].astype({"c": "category"}))
    )


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy"])
def test_a_model_fitted_to_a_label_predicts_for_the_same_frame(kind: str) -> None:
    frame = table()
    given = KINDS[kind](frame)
    model = made("Ridge").fit(given, label="y", sample_weight="w")
    np.testing.assert_array_equal(model.predict(given), model.predict(frame[FEATURES]))
    shuffled = KINDS[kind](frame[["c", "y", "a", "b"]])
    np.testing.assert_array_equal(model.predict(shuffled), model.predict(frame[FEATURES]))


def test_columns_in_another_order_are_refused_where_there_was_no_label() -> None:
    frame = table()
    model = made("Ridge").fit(frame, label="y").fit(frame[FEATURES], frame["y"])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dask"])
def test_a_label_with_holes_names_its_row(kind: str) -> None:
    frame = table()
    frame["y"] = [None if row == 3 else "yes" if one else "no" for row, one in enumerate(frame["y"])]
    with pytest.raises(DataError, match="the label must be there in every row, got none in row 3 of 'y'"):
        made("LogisticRegression").fit(KINDS[kind](frame), label="y")


@pytest.mark.parametrize("kind", ["Int64", "boolean", "int64[pyarrow]", "string[pyarrow]", "category"])
def test_labels_of_every_type_are_classes(kind: str) -> None:
    frame = table().drop(columns="w")
    labels = frame["y"].map({0: "no", 1: "yes"}) if kind == "string[pyarrow]" else frame["y"]
    model = made("LogisticRegression").fit(frame.assign(y=labels.astype(kind)), label="y")
    plain = made("LogisticRegression").fit(frame[FEATURES], frame["y"])
    np.testing.assert_allclose(model.coef_, plain.coef_)
    assert model.predict(frame).tolist() == [model.classes_[one] for one in plain.predict(frame[FEATURES])]


def test_dask_may_have_empty_partitions() -> None:
    frame = table()
    given = dask(frame)
    given = given[given["a"] > given["a"].min().compute() - (given["c"] < 9)].repartition(npartitions=2)
    empty = dask(frame)[lambda each: each["a"] > 1e9]
    whole = pytest.importorskip("dask.dataframe").concat([given, empty])
    assert whole.npartitions == 4
    plain = made("Ridge").fit(frame[FEATURES], frame["y"])
    np.testing.assert_allclose(made("Ridge").fit(whole.drop(columns="w"), label="y").coef_, plain.coef_)


@pytest.mark.parametrize("kind", ["stream", "scanner"])
def test_streams_of_arrow_are_read(kind: str) -> None:
    whole = pa.Table.from_pandas(table().drop(columns="w"))
    given = whole.to_reader() if kind == "stream" else ds.dataset(whole).scanner()
    plain = made("Ridge").fit(whole, label="y")
    np.testing.assert_array_equal(made("Ridge").fit(given, label="y").coef_, plain.coef_)


def test_a_label_that_is_there_twice_is_refused() -> None:
    frame = table()
    twice = pd.concat([frame, frame[["y"]]], axis=1)
    with pytest.raises(DataError, match="must have different names, got 'y' twice"):
        made("Ridge").fit(twice, label="y")
