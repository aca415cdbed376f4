"""svmlight files: a sparse table on disk, and fits from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from tests.learn.data import wide

from weft.cli.tables.data import command
from weft.errors import DataError
from weft.learn import GradientBoostingClassifier, LinearSVC, LogisticRegression, Ridge
from weft.learn.fitting_job import FitConfig, fit_job
from weft.learn.tables.convert import convert
from weft.learn.tables.form import open_stored


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.learn.tables.source.cache_folder", lambda kind: tmp_path / "cache" / kind)


@pytest.mark.parametrize("zero_based", [True, False])
def test_a_file_becomes_the_matrix_that_was_written(tmp_path: Path, zero_based: bool) -> None:
    X, y = wide(5000, 800)
    X = sparse.csr_matrix(X.astype(np.float32))
    X[0, 0] = 1.0  # a file whose first column is empty cannot tell where its counting begins
    dump_svmlight_file(X[:3000], y[:3000], str(tmp_path / "a.svm"), zero_based=zero_based)
    dump_svmlight_file(X[3000:], y[3000:], str(tmp_path / "b.libsvm"), zero_based=zero_based)
    folder = tmp_path / "table"
    # A bound that small makes several chunks of each file.
    table, report = convert([tmp_path / "a.svm", tmp_path / "b.libsvm"], folder, target=None, memory="1MB")
    assert report.clean
    found = open_stored(folder).features()
    assert (abs(found - X[:, : found.shape[1]])).max() == 0
    assert table.description.width == X.indices.max() + 1
    assert_allclose(table.target(), y)


def test_bad_rows_are_told_by_line_and_the_rest_is_kept(tmp_path: Path) -> None:
    lines = [
        "1 1:0.5 3:2",
        "# a remark",
        "-1 2:x",
        "1 qid:3 2:1 # with a remark",
        "",
        "-1 3:1 2:4",
        "high 1:1",
    ]
    lines += ["-1 2:nan", "-1 1:3"]
    (tmp_path / "a.svm").write_text("\n".join(lines))
    result = CliRunner().invoke(command, ["convert", str(tmp_path / "a.svm"), str(tmp_path / "t"), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["rows"], report["columns"], report["bad_rows"]) == (3, 3, 4)
    assert [row["line"] for row in report["bad"]] == [3, 6, 7, 8]
    assert [row["why"] for row in report["bad"]] == [
        "column 2 must be a number, got 'x'",
        "columns must come in ascending order, got 2 after 3",
        "the label must be a number, got 'high'",
        "column 2 is nan",
    ]
    found = open_stored(tmp_path / "t").features().toarray()
    assert_allclose(found, np.array([[0.5, 0, 2], [0, 1, 0], [3, 0, 0]]))


@pytest.mark.long
def test_fits_from_disk_are_those_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.learn.inputs.SMALL", 100)
    monkeypatch.setattr("weft.learn.tables.tables.BLOCK_NONZEROS", 1 << 12)
    monkeypatch.setattr("weft.learn.tables.tables.MAPPED", 1 << 12)
    X, y = wide(5000, 800)
    X = X.astype(np.float32)
    path = tmp_path / "train.svm"
    dump_svmlight_file(X, y, str(path))
    models: list[Any] = [
        LogisticRegression(tol=1e-7, solver="lbfgs"),
        LogisticRegression(tol=1e-7, solver="dual", random_state=0),
        LinearSVC(tol=1e-7, C=0.1),
        Ridge(tol=1e-9),
    ]
    for model in models:
        from_disk = model.fit(str(path), None, memory="2MB").coef_
        narrow = X[:, : from_disk.shape[-1]]
        assert_allclose(from_disk, model.fit(narrow, y).coef_, atol=2e-3)
    trees = GradientBoostingClassifier(n_estimators=2)
    assert_allclose(
        trees.fit(path, None).predict_proba(narrow), trees.fit(narrow, y).predict_proba(narrow), atol=1e-6
    )


def test_a_fit_with_no_code(tmp_path: Path) -> None:
    X, y = wide(500, 100)
    dump_svmlight_file(X, y, str(tmp_path / "train.svm"))
    report = fit_job(FitConfig(source=str(tmp_path / "train.svm")))
    assert (report["rows"], report["model"]) == (500, "LogisticRegression")
    assert report["train_score"] > 0.6


def test_what_cannot_be_meant_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:1\n")
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"must all be svmlight or none of them, got .*b\.csv"):
        convert([tmp_path / "a.svm", tmp_path / "b.csv"], tmp_path / "t", target=None)
    with pytest.raises(DataError, match="an svmlight file has no names"):
        convert([tmp_path / "a.svm"], tmp_path / "t", target="price")
    with pytest.raises(DataError, match="memory must be at least 1 MB"):
        convert([tmp_path / "a.svm"], tmp_path / "t", target=None, memory="5KB")
    (tmp_path / "c.svm").write_text("nothing\n")
    with pytest.raises(DataError, match=r"at least one good row, got none: .*c\.svm:1"):
        convert([tmp_path / "c.svm"], tmp_path / "t", target=None)
