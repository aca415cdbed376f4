"""Tables on disk: converted in chunks, mapped, and fitted as if they were in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.learn.data import classes, numbers
from tests.learn.trees.walks import same_splits

from weft.cli.tables.data import command
from weft.errors import DataError
from weft.learn import (
    DecisionTreeClassifier,
    GradientBoostingClassifier,
    Lasso,
    LinearRegression,
    LogisticRegression,
    RandomForestClassifier,
    Ridge,
)
from weft.learn.tables.convert import convert
from weft.learn.tables.form import open_stored
from weft.learn.tables.sizes import format_memory, parse_memory, share_out
from weft.learn.trees.growth.levels import in_batches

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.learn.tables.source.cache_folder", lambda kind: tmp_path / "cache" / kind)


def shards(folder: Path, X: Array, y: Array, count: int = 3) -> str:
    """Parquet files with columns c0, c1, ... and y; a glob that names them."""
    folder.mkdir(exist_ok=True)
    for part, rows in enumerate(np.array_split(np.arange(len(y)), count)):
        frame = pd.DataFrame(X[rows].astype(np.float32), columns=[f"c{i}" for i in range(X.shape[1])])
        frame["y"] = y[rows]
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / f"part-{part}.parquet")
    return str(folder / "*.parquet")


def test_sizes_as_people_write_them() -> None:
    assert parse_memory("4GB") == parse_memory(None) == 4 * 10**9
    assert parse_memory("4 GiB") == parse_memory("4096m") == 1 << 32
    assert parse_memory(10) == 10
    assert format_memory(1_500_000) == "1.5 MB"
    with pytest.raises(
        DataError, match=r"memory must be a number of bytes such as .*, got 'much'; write memory='4GB'"
    ):
        parse_memory("much")
    with pytest.raises(
        DataError, match=r"memory must be at least .* for 1000 columns, got 1 MB; use memory='50MB'"
    ):
        share_out("1MB", 1000)
    assert share_out("50MB", 1000).chunk_rows >= 256


@pytest.mark.parametrize("memory", ["2MB", "4GB"])
def test_linear_models_fit_from_disk_as_from_memory(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.learn.inputs.SMALL", 100)  # nothing is small enough to be read whole
    X, y = classes(20_000, 8)
    X = X.astype(np.float32)
    path = shards(tmp_path / "classes", X, y)
    stored = LogisticRegression(tol=1e-8, random_state=0).fit(path, "y", memory=memory)
    plain = LogisticRegression(tol=1e-8, random_state=0).fit(X, y)
    np.testing.assert_allclose(stored.coef_, plain.coef_, rtol=1e-3)
    assert list(stored.feature_names_in_) == [f"c{i}" for i in range(8)]
    X, y = numbers(20_000, 8)
    dataset = ds.dataset(str(Path(shards(tmp_path / "numbers", X, y)).parent))
    for model in (Ridge(1.0), LinearRegression(), Lasso(0.1, tol=1e-9)):
        from_disk = model.fit(dataset, "y", memory=memory).coef_
        np.testing.assert_allclose(from_disk, model.fit(X.astype(np.float32), y).coef_, rtol=1e-4, atol=1e-6)


def test_trees_fit_from_disk_as_from_memory(tmp_path: Path) -> None:
    X, y = classes(12_000, 9)
    X[0, 0] = np.nan
    X = X.astype(np.float32)
    path = shards(tmp_path / "data", X, y)
    names = [f"c{i}" for i in range(9)]
    tree = DecisionTreeClassifier(max_depth=5)
    # So little memory that codes go to a file, too.
    stored = tree.fit(path, "y", memory="600KB").tree_.__getstate__()["nodes"]
    assert list(tree.feature_names_in_) == names
    assert (stored == tree.fit(X, y).tree_.__getstate__()["nodes"]).all()
    for model in (
        GradientBoostingClassifier(n_estimators=3, random_state=0),
        RandomForestClassifier(3, random_state=0),
    ):
        one = model.fit(path, "y", memory="600KB").predict_proba(pd.DataFrame(X, columns=names))
        np.testing.assert_allclose(one, model.fit(X, y.astype(float)).predict_proba(X), atol=1e-12)
    with pytest.raises(ValueError, match="contains NaN: row 0, column 'c0'"):
        LogisticRegression().fit(path, "y")


def test_small_tables_from_disk_are_fitted_exactly(tmp_path: Path) -> None:
    X, y = classes(200, 4)
    names = np.array(["no", "yes"])[y]
    path = shards(tmp_path / "data", X, names)
    model = DecisionTreeClassifier(random_state=0).fit(path, "y")
    plain = DecisionTreeClassifier(random_state=0).fit(X.astype(np.float32), names)
    assert list(model.classes_) == ["no", "yes"]
    assert (model.tree_.__getstate__()["nodes"] == plain.tree_.__getstate__()["nodes"]).all()
    assert (
        LogisticRegression()
        .fit(path, "y")
        .score(pd.DataFrame(X.astype(np.float32), columns=model.feature_names_in_), names)
        > 0.7
    )


def test_bad_rows_are_told_by_file_and_line_and_the_rest_is_kept(tmp_path: Path) -> None:
    text = "a,b,y\n1,2,0\n3,4,1\nx,6,0\n7,8\n9,10,1\n11,,0\ninf,1,1\n13,14,\n15,16,1\n"
    file = tmp_path / "table.csv"
    file.write_text(text)
    table, report = convert([file], tmp_path / "out", target="y")
    np.testing.assert_array_equal(table.features(), [[1, 2], [3, 4], [9, 10], [11, np.nan], [15, 16]])
    np.testing.assert_array_equal(table.target(), [0, 1, 1, 0, 1])
    assert table.description.missing == 1
    assert {(row.line, row.why) for row in report.bad} == {
        (4, "a must be a number, got 'x'"),
        (5, "2 cells where 3 are"),
        (8, "a is inf"),
        (9, "the target is missing"),
    }
    assert str(report.bad[0]).startswith(f"{file}:")


def test_bad_files_are_named_and_the_others_kept(tmp_path: Path) -> None:
    X, y = classes(90, 3)
    shards(tmp_path / "data", X, y)
    (tmp_path / "data" / "part-1.parquet").write_bytes(b"PAR1 nothing")
    pq.write_table(pa.table({"c0": [1.0], "y": [1]}), tmp_path / "data" / "part-2.parquet")
    with pytest.warns(
        UserWarning, match=r"0 rows and 2 files were left out: .*part-1.parquet must be a readable"
    ):
        model = LogisticRegression().fit(tmp_path / "data", "y")
    assert model.n_features_in_ == 3
    _, report = convert(sorted((tmp_path / "data").iterdir()), tmp_path / "out", target="y")
    assert report.rows == 30
    assert (
        "part-2.parquet must have the columns of the first file, got none named c1, c2" in report.bad_files[1]
    )


def test_what_cannot_be_found_is_said(tmp_path: Path) -> None:
    X, y = classes(50, 2)
    path = shards(tmp_path / "data", X, y)
    with pytest.raises(DataError, match=r"the target must be a column of .*, got 'z'; it has c0, c1, y"):
        Ridge().fit(path, "z")
    with pytest.raises(DataError, match=r"none.csv must name files that end in .parquet"):
        Ridge().fit(tmp_path / "none.csv", "y")
    with pytest.raises(DataError, match="y must be the name of the target column"):
        Ridge().fit(path, y)
    words = tmp_path / "words.parquet"
    pq.write_table(pa.table({"a": ["one", "two"], "y": [0, 1]}), words)
    with pytest.raises(DataError, match="must hold numbers in a, got string"):
        Ridge().fit(words, "y")


def test_the_command_converts_and_checks(tmp_path: Path) -> None:
    X, y = classes(300, 3)
    path = shards(tmp_path / "data", X, y)
    out = tmp_path / "fast"
    result = CliRunner().invoke(command, ["convert", path, str(out), "--target", "y", "--memory", "1MB"])
    assert result.exit_code == 0
    assert "300 rows x 3 columns" in result.output
    assert (out / "X.npy").stat().st_size == 128 + 300 * 3 * 4
    model = LogisticRegression().fit(out, None)
    assert model.score(pd.DataFrame(X, columns=["c0", "c1", "c2"]), y) > 0.6
    bad = tmp_path / "bad.csv"
    bad.write_text("a,y\n1,0\ntwo,1\n")
    result = CliRunner().invoke(
        command, ["convert", str(bad), str(tmp_path / "b"), "--target", "y", "--strict", "--json"]
    )
    assert result.exit_code == 1
    assert json.loads(result.output)["bad"][0]["line"] == 3
    np.save(out / "X.npy", np.zeros((3, 3), np.float32))
    with pytest.raises(
        DataError, match=r"fast must hold a table of the shape \(300, 3\), got \(3, 3\); convert it again"
    ):
        open_stored(out)


@pytest.mark.long
def test_codes_in_a_file_give_the_same_deep_tree() -> None:
    X, y = classes(30_000, 11, 3)
    plain = DecisionTreeClassifier(tree_method="hist").fit(X, y)
    filed = DecisionTreeClassifier(tree_method="hist")
    filed._room = 40_000  # bytes: codes go to a file, and small nodes are finished in batches
    filed.fit(X, y)
    assert plain.tree_.max_depth > 12
    assert same_splits(filed.tree_, plain.tree_) == plain.tree_.node_count


def test_batches_of_neighbours() -> None:
    assert in_batches([], 5) == []
    assert in_batches([3, 2, 4, 9, 1, 1], 5) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 6)]
