"""Reading of tables, roles of columns, tasks, and what is refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.auto.data import mixed_columns, write_csv

from weft.auto.columns import find_roles, find_task
from weft.auto.config import AutoConfig
from weft.auto.findings import column_findings
from weft.auto.frames import read_table
from weft.auto.preparing import prepare
from weft.errors import DataError, UsageError


def test_roles_are_found() -> None:
    roles = {role.name: role.role for role in find_roles(read_table(mixed_columns()), AutoConfig(target="y"))}
    assert roles == {
        "id": "identifier",
        "age": "number",
        "income": "number",
        "city": "category",
        "zip": "category",
        "when": "date",
        "note": "text",
        "empty": "constant",
    }


def test_every_frame_is_the_same_table(tmp_path: Path) -> None:
    columns = mixed_columns(60)
    wanted = read_table(columns)
    frame = pd.DataFrame(columns)
    sources: list[Any] = [
        frame,
        frame.astype({"city": "category"}),
        pl.from_pandas(frame),
        pa.Table.from_pandas(frame),
    ]
    frame.to_parquet(tmp_path / "t.parquet")
    sources += [tmp_path / "t.parquet", write_csv(tmp_path / "t.csv", columns)]
    for source in sources:
        found = read_table(source)
        for name in ("age", "city", "when", "note"):
            assert found[name].kind == wanted[name].kind
            np.testing.assert_array_equal(found.values(name), wanted.values(name))


def test_dates_in_text_are_dates() -> None:
    table = read_table({"a": ["2024-02-29", None, "2024-03-01 12:00:00"], "b": ["2024-02-29", "late", ""]})
    assert table["a"].kind == "date"
    assert np.isnan(table.values("a")[1])
    assert table.values("a")[2] - table.values("a")[0] == 36 * 3600
    assert table["b"].kind == "text"


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        ([0, 1, 1, 0, 1] * 20, (0, 1)),
        (["b", "a", "b", "a", "b"] * 20, ("a", "b")),
        ([True, False] * 50, (0, 1)),
        (list(range(100)), None),
        ([0.5, 1.5] * 50, None),
    ],
)
def test_the_target_tells_the_task(target: list[Any], classes: Any) -> None:
    task, rows, values = find_task(read_table({"y": target}), AutoConfig(target="y"))
    assert task.classes == classes
    assert len(rows) == len(values) == 100


def test_rows_that_cannot_be_learnt_from_are_left_out_and_told() -> None:
    columns = {"x": np.arange(60.0) % 7, "y": ["a", "b"] * 28 + ["c", "c", None, "a"]}
    found = prepare(read_table(columns), AutoConfig(target="y"))
    assert (found.task.classes, len(found.target)) == (("a", "b"), 57)
    told = {one.kind: one.sentence for one in found.findings}
    assert told["target"].startswith("1 of 60 rows are left out: y is missing")
    assert told["rare"].startswith("2 rows are left out: their value of y is in fewer than 5 rows")
    assert told["few"].startswith("57 rows are few (fewer than 200)")


def test_a_leak_is_found_among_many_columns() -> None:
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {f"x{place}": random.normal(size=200) for place in range(350)}
    columns["y"] = (random.random(200) < 0.1).astype(int)
    columns["paid"] = columns["y"] * 2.0 + random.random(200)
    columns["word"] = [f"w{value}" for value in columns["y"]]
    began = time.process_time()
    found = prepare(read_table(columns), AutoConfig(target="y"))
    assert {one.column for one in found.findings if one.kind == "leak"} == {"paid", "word"}
    assert time.process_time() - began < 10  # and not a quadratic time in the columns


def test_copies_and_columns_that_are_not_read_are_left_out_and_told() -> None:
    random = np.random.default_rng(0)
    x, word = random.normal(size=60), random.choice(["a", "b", "c"], 60)
    columns = {"x": x, "again": x, "word": word, "words": word, "when": x, "y": random.normal(size=60)}
    table = pa.table({**columns, "list": [[1]] * 60})
    config = AutoConfig(target="y", time="when")
    roles = {role.name: role for role in find_roles(read_table(table), config)}
    assert {name: role.role for name, role in roles.items()} == {
        "x": "number", "again": "copy", "word": "category", "words": "copy", "when": "number", "list": "other",
    }  # fmt: skip
    told = {one.column: one.sentence for one in column_findings(list(roles.values()))}
    assert told["again"] == "again is left out: its values are those of x"
    assert told["list"] == "list is left out: list<item: int64> values are not read"


@pytest.mark.parametrize(
    ("values", "classes"),
    [(["1", "2"] * 30, ("1", "2")), ([str(i / 4) for i in range(60)], None), (["x", "y"] * 30, ("x", "y"))],
)
def test_a_target_of_text_is_classes_unless_it_holds_amounts(values: list[str], classes: Any) -> None:
    task, _, target = find_task(read_table({"y": values}, target="y"), AutoConfig(target="y"))
    assert task.classes == classes
    assert classes is not None or target[:3].tolist() == [0.0, 0.25, 0.5]


def test_rows_without_a_target_are_left_out() -> None:
    _, rows, values = find_task(read_table({"y": [1.5, None, 2.5, 3.25] * 25}), AutoConfig(target="y"))
    assert len(rows) == len(values) == 75
    assert 1 not in rows


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        (
            {"x": [1.0] * 60, "y": [1] * 60},
            {"target": "z"},
            "--target must be a column of the table, got 'z'",
        ),
        ({"x": [1, 2] * 30, "y": ["a"] * 60}, {"target": "y"}, "must have at least 2 classes, got one: 'a'"),
        ({"x": [1, 2] * 30, "y": [2.5] * 60}, {"target": "y"}, "must vary, got one value"),
        (
            {"x": [1, 2] * 30, "y": [1] * 60},
            {"target": "y"},
            r"at least 2 classes, got one: 1\.0; name another",
        ),
        (
            {"x": [1, 2] * 30, "y": np.arange(60).astype("datetime64[D]")},
            {"target": "y"},
            "must be classes or numbers, got dates in 'y'; name another column",
        ),
        (
            {"x": [1, 2] * 30, "t": [5] * 60, "y": [0, 1] * 30},
            {"target": "y", "time": "t"},
            "--time must tell later rows from earlier ones, got one value in 't'",
        ),
        (
            {"x": [1, 2] * 5, "y": [1, 0] * 5},
            {"target": "y"},
            "must have at least 20 rows with a target, got 10",
        ),
        (
            {"x": [None] * 60, "y": [1, 0] * 30},
            {"target": "y"},
            r"must have a column to predict 'y' from, got x \(con",
        ),
        (
            {"x": [1, 2] * 30, "y": ["a"] * 56 + ["b", "c", "d", "d"]},
            {"target": "y"},
            "must have 2 classes of at least 5 rows, got 1 of 4 values; name another column",
        ),
        (
            {"x": [1, 2] * 30, "y": list(range(15)) * 4},
            {"target": "y"},
            "got 0 of 15 values; if they are amounts, write --task numbers",
        ),
        (
            {"x": [1, 2] * 30, "y": [1, 0] * 30},
            {"target": "y", "metric": "rmse"},
            "--metric must be one of log_loss",
        ),
        (
            {"x": [1, 2] * 30, "y": ["a", "b"] * 30},
            {"target": "y", "task": "numbers"},
            "must have a target of num",
        ),
        (
            {"x": [1, 2] * 30, "y": [0, 1, 2] * 20},
            {"target": "y", "metric": "auc"},
            "auc must have 2 classes, got 3",
        ),
    ],
)
def test_tables_that_cannot_be_learnt_from_are_refused(
    columns: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    config, table = AutoConfig(**settings), read_table(columns)
    with pytest.raises(UsageError, match=message):
        prepare(table, config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minutes": 0}, "--minutes must be above 0"),
        ({"minutes": float("nan")}, "--minutes must be a number"),
        ({"metric": "f1"}, "--metric must be one of accuracy, auc, log_loss, mae, rmse, got 'f1'"),
        ({"models": ("svm",)}, "--model must be one of linear"),
        ({"time": "a", "group": "b"}, "--time must come without --group"),
        ({"drop": ("y",)}, "--target must be a column of its own"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AutoConfig(target="y", **settings)


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"not parquet")
    for name, message in {
        "t.xlsx": "must end in one of .csv, .tsv, .parquet",
        "none.csv": "must be a file, got nothing there",
        "broken.parquet": "must be a readable parquet file",
    }.items():
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / name)
    with pytest.raises(DataError, match="a table must be a path, a frame"):
        read_table(7)


def test_rows_to_predict_must_have_the_columns_of_the_fit() -> None:
    with pytest.raises(DataError, match="rows must have the column 'b' of the fit"):
        read_table({"a": [1]}, {"a": "number", "b": "number"})
    with pytest.raises(DataError, match="column 'a' must hold dates, as in the fit"):
        read_table({"a": ["soon"]}, {"a": "date"})
    assert read_table({"a": ["1.5"]}, {"a": "number"}).values("a").tolist() == [1.5]


def test_a_frame_with_two_columns_of_one_name_is_refused() -> None:
    frame = pd.DataFrame([[1, 2, 3]] * 30, columns=["x", "x", "y"])
    with pytest.raises(DataError, match="columns must have different names, got 'x' twice; rename one"):
        read_table(frame, target="y")
