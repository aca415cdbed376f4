"""`weft learn fit`: a model of a table, by one process or by several."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from click.testing import CliRunner
from testing.forking.server import TABLES, ForkServer
from tests.learn.data import classes, numbers

from weft.cli.tables.learn import command
from weft.errors import UsageError

Array = np.ndarray[Any, Any]


@pytest.fixture
def table(tmp_path: Path, own_cache: None) -> Path:
    X, y = classes(600, 4)
    frame = pd.DataFrame(X.astype(np.float32), columns=list("abcd")).assign(y=y)
    frame[:400].to_parquet(tmp_path / "train.parquet")
    frame[400:].to_csv(tmp_path / "test.csv", index=False)
    return tmp_path / "train.parquet"


def told(*args: str) -> dict[str, Any]:
    result = CliRunner().invoke(command, ["fit", *args, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_one_process_fits_scores_and_keeps_the_model(table: Path, tmp_path: Path) -> None:
    out, test = tmp_path / "model.pkl", tmp_path / "test.csv"
    report = told(str(table), "--target=y", "--param", "C=0.5", "--test", str(test), "--out", str(out))
    assert report["model"] == "LogisticRegression"
    assert (report["rows"], report["columns"], report["workers"]) == (400, 4, 1)
    assert report["gap"] < 1e-4
    model = pickle.loads(out.read_bytes())
    assert model.C == 0.5
    frame = pd.read_csv(test).astype(np.float32)
    assert model.score(frame[list("abcd")], frame["y"]) == pytest.approx(report["test_score"], abs=1e-6)


def test_a_file_says_what_to_do_and_options_win(table: Path, tmp_path: Path) -> None:
    config = tmp_path / "fit.yaml"
    config.write_text(f"table: {table}\ntarget: y\nmodel: tree\nparams:\n  max_depth: 2\n  max_bins: 20\n")
    out = tmp_path / "model.pkl"
    report = told(str(config), "--param", "max_depth=3", "--out", str(out))
    model = pickle.loads(out.read_bytes())
    assert (report["model"], model.max_depth, model.max_bins) == ("DecisionTreeClassifier", 3, 20)
    for text, why in (
        ("target: y", "it must have the field table, got none; add table"),
        ("table: a\ndepth: 3", "must be among table, target, model, params, memory, out, test, got depth"),
        ("- 1", "it must be a mapping, got a list"),
        ("a: [", "must be a readable YAML file"),
    ):
        config.write_text(text)
        with pytest.raises(UsageError, match=why):
            told(str(config))


def test_a_model_kept_as_onnx(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    report = told(str(table), "--target=y", "--model=tree", "--out", str(out))
    session = onnxruntime.InferenceSession(out)
    frame = pd.read_parquet(table)
    (labels,) = session.run(["label"], {"X": frame[list("abcd")].to_numpy()})
    assert (labels == frame["y"]).mean() == pytest.approx(report["train_score"], abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("model", ["tree", "forest", "boosting"])
def test_other_models_of_a_number(table: Path, tmp_path: Path, model: str) -> None:
    X, y = numbers(200, 3)
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_parquet(tmp_path / "numbers.parquet")
    assert told(str(tmp_path / "numbers.parquet"), "--target=y", "--model", model)["train_score"] > 0.8


def test_what_cannot_be_meant_is_said(table: Path) -> None:
    with pytest.raises(UsageError, match="--param must be one of LogisticRegression's"):
        told(str(table), "--target=y", "--param", "depth=3")
    with pytest.raises(UsageError, match="--model must be one of linear, lasso"):
        told(str(table), "--target=y", "--model=magic")
    with pytest.raises(UsageError, match="--model lasso must have a target of numbers, got one of classes"):
        told(str(table), "--target=y", "--model=lasso")


def by_two_workers(forks: ForkServer, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = ["learn", "fit", *args, "--json", "-n", "2"]
    return forks.load(*TABLES).run(command, env=os.environ, cwd=folder, timeout=280)


def test_what_cannot_be_fitted_is_one_clear_error(table: Path, tmp_path: Path, forks: ForkServer) -> None:
    frame = pd.read_parquet(table)
    frame.loc[350, "c"] = np.nan
    frame.to_parquet(tmp_path / "holes.parquet")
    out = tmp_path / "model.pkl"
    args = [str(tmp_path / "holes.parquet"), "--target=y", "--out", str(out)]
    with pytest.raises(UsageError, match=r"^Input X contains NaN: row 350, column 'c'$"):
        told(*args)
    with pytest.raises(UsageError, match=r"^C must be a number above 0, got -1$"):
        told(str(table), "--target=y", "--param", "C=-1")
    done = by_two_workers(forks, tmp_path, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert "weft: Input X contains NaN: row 350, column 'c'" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_a_worker_that_finds_no_table_ends_all(table: Path, tmp_path: Path, forks: ForkServer) -> None:
    done = by_two_workers(forks, tmp_path, str(table), "--target=z")  # rank 0 opens it, the other one waits
    assert done.returncode == 2
    (told_once,) = [line for line in done.stderr.splitlines() if "got 'z'" in line]
    assert told_once.startswith("weft: the target must be a column of")
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_two_workers_find_the_model_of_one(
    table: Path, tmp_path: Path, model: str, forks: ForkServer
) -> None:
    out = tmp_path / "model.pkl"
    args = [str(table), "--target=y", "--model", model, "--out", str(out)]
    done = by_two_workers(forks, tmp_path, *args)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["workers"] == 2
    two = pickle.loads(out.read_bytes())
    alone = told(*args)
    one = pickle.loads(out.read_bytes())
    assert report["train_score"] == pytest.approx(alone["train_score"], abs=0.01)
    frame = pd.read_parquet(table)[list("abcd")]
    np.testing.assert_allclose(two.predict_proba(frame), one.predict_proba(frame), atol=2e-3)
