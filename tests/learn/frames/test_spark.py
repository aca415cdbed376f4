"""Spark's data frames: who reads which rows is decided without Spark; real fits need pyspark and Java."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.learn.frames import spark_fits_table

from weft.errors import DataError, UsageError
from weft.files import cache_folder
from weft.learn import GradientBoostingClassifier, LogisticRegression, Ridge
from weft.learn.frames.spark import SparkPlan, _explained, plan_of, rows_of
from weft.learn.frames.spark_files import GroupBatches, RowGroup, shares_of
from weft.learn.frames.spark_predictions import features_read
from weft.learn.frames.spark_task import SparkRows, address_of, packed, share_of, unpacked

TYPES = {"a": "double", "b.c": "int", "y": "string", "w": "float"}
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("partitions", "slots", "plan"),
    [
        (8, 8, SparkPlan(8, dealt=False)),
        (5, 8, SparkPlan(5, dealt=False)),
        (3, 8, SparkPlan(8, dealt=True)),  # more than half of the slots would idle
        (200, 8, SparkPlan(8, dealt=True)),  # barrier tasks must all run at once
        (None, 8, SparkPlan(8, dealt=True)),
        (1, 1, SparkPlan(1, dealt=False)),
    ],
)
def test_partitions_are_read_where_they_are_if_they_fill_the_slots(
    partitions: int | None, slots: int, plan: SparkPlan
) -> None:
    assert plan_of(partitions, slots) == plan


def test_workers_read_all_columns_but_label_and_weights() -> None:
    assert rows_of(TYPES, "y", "w") == SparkRows(("a", "b.c"), "y", "w", "double")
    assert rows_of({"a": "float", "y": "int"}, "y", None).width == "float"
    assert rows_of({"v": "vector", "y": "int"}, "y", None).vector


@pytest.mark.parametrize(
    ("types", "why"),
    [
        ({"a": "double"}, "the label must be a column of the frame, got 'y'; its columns are a"),
        ({"y": "int"}, "must have features beside the label"),
        ({"a": "string", "y": "int"}, "must be numbers, got string in 'a'; encode or drop it"),
        ({"v": "vector", "a": "double", "y": "int"}, "a vector must be the only feature of a frame, got 'v'"),
    ],
)
def test_frames_that_cannot_be_read_are_refused(types: dict[str, str], why: str) -> None:
    with pytest.raises(DataError, match=why):
        rows_of(types, "y", None)


def test_a_model_finds_its_columns_by_name() -> None:
    assert features_read(TYPES, np.array(["b.c", "a"])).features == ("b.c", "a")
    assert features_read({"v": "vector", "y": "int"}, None).vector
    with pytest.raises(DataError, match="got none named 'z'"):
        features_read(TYPES, ["z"])


def batches() -> list[pa.RecordBatch]:
    whole = pa.table(
        {"x0": [1.0, None, 3.0], "x1": [4.0, 5.0, 6.0], "label": ["a", "b", "a"], "weight": [1.0, 2.0, 3.0]}
    )
    return [*whole.slice(0, 2).to_batches(), *whole.slice(2).to_batches(), *whole.slice(3).to_batches()]


@pytest.mark.parametrize("dealt", [False, True])
def test_a_share_is_the_rows_of_all_batches(dealt: bool) -> None:
    given = unpacked(packed(batches())) if dealt else batches()
    share = share_of(given, SparkRows(("p", "q"), "y", "w", "double"))
    np.testing.assert_array_equal(share.X, [[1, 4], [np.nan, 5], [3, 6]])
    assert share.y.tolist() == ["a", "b", "a"]
    assert share.weights is not None
    assert share.weights.tolist() == [1, 2, 3]


def test_vectors_are_rows() -> None:
    lists = pa.record_batch({"x0": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]})
    share = share_of([lists], SparkRows(("v",), "y", None, "double", vector=True))
    np.testing.assert_array_equal(share.X, [[1, 2], [3, 4]])
    ragged = pa.record_batch({"x0": [[1.0, 2.0], [3.0]], "label": [0, 1]})
    with pytest.raises(DataError, match="one length"):
        share_of([ragged], SparkRows(("v",), "y", None, "double", vector=True))


def test_a_missing_label_names_its_column() -> None:
    batch = pa.record_batch({"x0": [1.0, 2.0], "label": ["a", None]})
    with pytest.raises(DataError, match="got null in 'y'; drop those rows"):
        share_of([batch], SparkRows(("p",), "y", None, "double"))


def test_tasks_of_one_host_meet_on_its_loopback_address() -> None:
    assert address_of(["10.0.0.5", "10.0.0.5"]) == "127.0.0.1"
    assert address_of(["10.0.0.5", "10.0.0.6"]) == "10.0.0.5"


def test_what_a_cluster_lacks_is_told() -> None:
    told = _explained("PythonException ... ModuleNotFoundError: No module named 'weft'")
    assert isinstance(told, UsageError)
    assert "executors must have weft[learn] installed, got none of weft there" in str(told)
    assert "spark.dynamicAllocation.enabled to false" in str(_explained("[SPARK-24942]: Barrier execution"))
    assert _explained("the network is down") is None


def groups(path: Path) -> list[RowGroup]:
    return [
        RowGroup(str(path), number, pq.read_metadata(path).row_group(number).num_rows)
        for number in range(pq.read_metadata(path).num_row_groups)
    ]


def test_groups_of_rows_are_shared_out_evenly_and_once() -> None:
    given = [RowGroup("a", number, rows) for number, rows in enumerate([10, 10, 10, 5, 5, 20])]
    shares = shares_of(given, 3)
    assert [one for share in shares for one in share] == given
    assert [sum(one.rows for one in share) for share in shares] == [20, 20, 20]
    assert shares_of(given[:1], 2) == ((), (given[0],))
    assert shares_of([], 2) == ((), ())


def test_files_give_the_batches_that_spark_would(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    whole = pa.table(
        {
            "y": ["a", "b", "a"],
            "q": pa.array([4, 5, None], pa.int64()),
            "p": pa.array([True, None, False]),
            "w": pa.array([1.0, 2.0, 3.0], pa.float32()),
        }
    )
    pq.write_table(whole, path, row_group_size=2)
    rows = SparkRows(("p", "q"), "y", "w", "double")
    read = GroupBatches(tuple(groups(path)), rows)
    assert read.row_count == 3
    share = share_of(read, rows)
    np.testing.assert_array_equal(share.X, [[1, 4], [np.nan, 5], [0, np.nan]])
    assert share.y.tolist() == ["a", "b", "a"]
    assert share.weights is not None
    assert share.weights.tolist() == [1, 2, 3]


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None, reason="needs pyspark: pip install '.[spark]'"
)
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java: apt install default-jre-headless")
def test_fits_on_a_real_spark_are_those_of_one_process(tmp_path: Path) -> None:
    script = Path(__file__).with_name("spark_fits.py")
    variables = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "NUMBA_CACHE_DIR": str(cache_folder("kernels")),
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    here = spark_fits_table.table()
    X = here[spark_fits_table.FEATURES]
    plain = LogisticRegression(tol=1e-10).fit(X, here["y"], sample_weight=here["w"])
    assert told["partitions"] == 2
    assert (told["names"], told["classes"], told["n_jobs"]) == (list(X.columns), ["no", "yes"], None)
    np.testing.assert_allclose(told["coef"], plain.coef_, rtol=1e-4)
    np.testing.assert_allclose(told["dealt"], plain.coef_, rtol=1e-4)
    np.testing.assert_allclose(told["probable"], plain.predict_proba(X), atol=1e-4)
    assert np.mean(np.array(told["predicted"]) == plain.predict(X)) > 0.999
    ridge = Ridge(tol=1e-10).fit(here[["a", "d"]], here["w"])
    np.testing.assert_allclose(told["of vectors"][0], ridge.coef_, rtol=1e-4)
    assert told["of vectors"][1] == told["of vectors"][2] == len(here)
    trees = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, here["y"])
    assert told["trees"] == trees.predict(X).tolist()
    assert told["read by"] == {
        "a file": 2,
        "its columns": 2,
        "some rows": 0,
        "another column": 0,
        "made here": 0,
    }
    for name in ("a file", "some rows"):
        rows = here if name == "a file" else here[here["a"] > 0]
        alike = LogisticRegression(tol=1e-10).fit(rows[["a", "d"]], rows["y"], sample_weight=rows["w"])
        np.testing.assert_allclose(told["of files"][name], alike.coef_, rtol=1e-4)
    assert "every worker must have rows that can be fitted" in told["missing"]
    assert "C must be a number above 0, got -1" in told["parameter"]
