"""Whole runs of weft.auto: a model of raw rows, its files, and runs that are killed and go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner
from tests.auto.data import mixed_columns, write_csv

import weft.auto
from weft.auto.columns import ColumnRole, Task
from weft.auto.explaining import MOST_EXPLAINED, explain, group_outcomes, shapley_values, telling_columns
from weft.auto.frames import RawColumn, RawTable, read_table
from weft.auto.model import AutoModel
from weft.auto.onnx import check_parity, feed_of
from weft.auto.report.page import report_html
from weft.auto.search.budget import ExplainSizes
from weft.cli import call, group
from weft.errors import ModelError, UsageError

QUICK: dict[str, Any] = {"trials": 4, "models": ("linear", "boosting", "forest", "network")}


pytestmark = pytest.mark.xdist_group("auto-runs")  # one process makes what they share


@pytest.fixture(scope="module")
def found() -> AutoModel:
    return weft.auto.fit(mixed_columns(600), "y", minutes=5, fairness="city", **QUICK)


def test_the_ensemble_beats_the_baseline_on_rows_no_choice_has_seen(found: AutoModel) -> None:
    held = {row.name: row.held_score for row in found.leaderboard}
    assert held["ensemble"] is not None
    assert held["baseline"] is not None
    assert held["ensemble"] < 0.95 * held["baseline"]
    assert found.score == held["ensemble"]
    assert {"boosting 0", "linear 1", "network 2", "forest 3", "baseline", "ensemble"} == set(held)


def test_every_frame_is_predicted_alike(found: AutoModel) -> None:
    columns = mixed_columns(50, seed=5)
    frame = pd.DataFrame(columns)
    wanted = found.predict_proba(columns)
    assert wanted.shape == (50, 2)
    assert wanted.sum(axis=1) == pytest.approx(1)
    for rows in (frame, pl.from_pandas(frame), frame.drop(columns=["y", "id"])):
        np.testing.assert_array_equal(found.predict_proba(rows), wanted)
    assert (found.predict(frame) == np.array(["no", "yes"])[wanted.argmax(axis=1)]).all()
    assert np.mean(found.predict(frame) == frame["y"]) > 0.6


def test_the_exported_graph_takes_raw_rows(found: AutoModel) -> None:
    made = weft.auto.to_onnx(found)
    rows = read_table(mixed_columns(50, seed=5), found.kinds)
    assert check_parity(found, made, rows) < 1e-9
    surer = replace(found, power=found.power * 1.7)
    assert check_parity(surer, weft.auto.to_onnx(surer), rows) < 1e-9
    assert np.abs(surer.raw(rows) - found.raw(rows)).max() > 0.01
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (labels,) = session.run(["label"], feed_of(rows, found.kinds))
    assert labels.tolist() == found.classes_[found.raw(rows).argmax(axis=1)].tolist()


def test_effects_of_columns_add_up_to_the_prediction(found: AutoModel) -> None:
    told = found.explanation
    assert told is not None
    for row in told.rows:
        effects = sum(reason.effect for reason in row.reasons) + row.rest
        assert row.base + effects == pytest.approx(row.predicted)
    assert {one.name for one in told.importance[:4]} >= {"age", "note"}
    assert sum(map(sum, told.confusion)) == 120  # the held-out fifth of 600 rows


def test_the_columns_that_matter_are_found_among_many() -> None:
    random = np.random.default_rng(0)
    table = read_table({f"x{place}": random.normal(size=120) for place in range(700)})
    weights = {"x3": 1.0, "x77": -2.0, "x500": 0.5, "x699": 3.0}

    def asked(rows: RawTable) -> Any:
        return sum(weight * rows.values(name) for name, weight in weights.items())

    names = list(table.columns)
    found = telling_columns(asked, table, names, random)
    assert len(found) <= MOST_EXPLAINED
    assert set(weights) <= set(found)
    assert telling_columns(asked, table, names[:60], random) == names[:60]
    rest = tuple(name for name in names if name not in weights)
    rows, background = table.take(np.arange(5)), table.take(np.arange(5, 60))
    values, base = shapley_values(asked, rows, background, [*((name,) for name in weights), rest], random, 8)
    np.testing.assert_allclose(values.sum(axis=1) + base, asked(rows))
    np.testing.assert_allclose(values[:, -1], 0, atol=1e-12)


def test_predictions_of_other_rows_are_taken_apart(found: AutoModel) -> None:
    columns = mixed_columns(6, seed=5)
    told = found.reasons(columns)
    wanted = found.predict_proba(columns)[:, -1]
    assert [row.row for row in told] == list(range(6))
    for row, predicted in zip(told, wanted, strict=True):
        assert row.predicted == pytest.approx(predicted)
        assert row.base + row.rest + sum(reason.effect for reason in row.reasons) == pytest.approx(predicted)


class SumModel:
    """A model of numbers: the sum of its first two columns."""

    def __init__(self, table: RawTable) -> None:
        self.task = Task("y", "rmse", None)
        self.kinds = dict.fromkeys(table.columns, "number")
        self.columns = [ColumnRole(name, "number", "number", 9, 0.0, "") for name in table.columns]

    def raw(self, table: RawTable) -> Any:
        return (table.values("x0") + table.values("x1"))[:, None]


def test_a_wide_table_is_explained() -> None:
    random = np.random.default_rng(0)
    table = read_table({f"x{place}": random.normal(size=90) for place in range(150)})
    model = SumModel(table)
    truth = model.raw(table)[:, 0]
    found = explain(model, table, table, truth, (), 0, ExplainSizes(60, 8, 4))
    assert len(found.importance) <= MOST_EXPLAINED
    assert {one.name for one in found.importance[:2]} == {"x0", "x1"}
    for row in found.rows:
        assert row.predicted == pytest.approx(truth[row.row])
        assert row.base + row.rest + sum(reason.effect for reason in row.reasons) == pytest.approx(
            row.predicted
        )


def test_groups_are_compared_by_the_four_fifths_rule() -> None:
    group = RawColumn("team", "text", np.array(["a"] * 50 + ["b"] * 50 + ["c"] * 5, object))
    chosen = np.array([1] * 40 + [0] * 10 + [1] * 20 + [0] * 30 + [1] * 5)
    shares = np.column_stack([1 - chosen, chosen]).astype(float)
    found = group_outcomes(group, shares, chosen, Task("y", "accuracy", ("no", "yes")))
    assert [(one.group, one.rate, one.ratio, one.warned) for one in found] == [
        ("a", 0.8, 1.0, False),
        ("b", 0.4, 0.5, True),  # c is too small to tell
    ]


def test_the_report_stands_alone(found: AutoModel) -> None:
    page = report_html(found, ["a <note>"])
    assert "a &lt;note&gt;" in page
    for part in (
        "Leaderboard",
        "Partial dependence",
        "Calibration",
        "Confusion",
        "Reasons of single",
    ):
        assert f"<h2>{part}" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme: dark" in page


def test_numbers_are_predicted_and_leaks_named() -> None:
    columns = mixed_columns(200, classes=False)
    columns["paid"] = columns["y"] * 3 + 1
    model = weft.auto.fit(columns, "y", minutes=5, trials=1, models="linear", time="when")
    assert [one.column for one in model.findings if one.kind == "leak"] == ["paid"]
    assert "--drop paid" in next(one.sentence for one in model.findings if one.kind == "leak")
    assert model.validation.startswith("by time")
    assert check_parity(model, weft.auto.to_onnx(model), read_table(columns, model.kinds)) < 1e-6
    with pytest.raises(ModelError, match="call predict"):
        model.predict_proba(columns)


def test_rows_that_drift_are_named() -> None:
    columns = mixed_columns(300, classes=False)
    columns["income"] = np.where(np.arange(300) > 240, columns["income"] + 1e6, columns["income"])
    model = weft.auto.fit(columns, "y", minutes=5, trials=1, models="linear")
    (drift,) = [one for one in model.findings if one.kind == "drift"]
    assert drift.column == "income"
    assert drift.figure > drift.threshold


def kept_trials(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = sorted((folder / "trials").iterdir())
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def test_a_killed_run_goes_on_without_loss(tmp_path: Path) -> None:
    table, out = write_csv(tmp_path / "t.csv", mixed_columns(120)), tmp_path / "run"
    words = ["auto", str(table), "--target", "y", "--minutes", "5", "--trials", "6", "--model", "linear"]
    words += ["--model", "boosting", "--out", str(out), "--json"]
    started = subprocess.Popen(
        [sys.executable, "-m", "weft", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stderr is not None
    seen = next((line for line in started.stderr if " 3; best" in line), "")  # trial 3 has begun
    os.kill(started.pid, signal.SIGKILL)
    started.communicate()
    assert seen
    before = kept_trials(out)
    assert {"0000.json", "0001.json", "0002.json"} <= set(before)
    done = CliRunner(catch_exceptions=False).invoke(group, words)
    assert done.exit_code == 0, done.output
    after = kept_trials(out)
    assert {name: after[name] for name in before} == before  # read again, none run twice
    assert {f"{number:04d}.json" for number in range(6)} <= set(after)
    told = json.loads(done.stdout)
    assert told["leaderboard"][0]["name"] == "ensemble"
    assert (out / "report.html").exists()
    assert (out / "model.onnx").exists()
    model = weft.auto.load(out)
    assert model.score == told["held_score"]
    # The run is over: the same command answers at once, and other settings are refused.
    new = write_csv(tmp_path / "new.csv", mixed_columns(30, seed=3))
    assert CliRunner().invoke(group, [*words, "--predict", str(new)]).exit_code == 0
    assert kept_trials(out) == after
    predicted = pd.read_csv(out / "predictions.csv")
    assert list(predicted) == ["prediction", "probability of no", "probability of yes"]
    assert predicted["prediction"].tolist() == model.predict(new).tolist()
    np.testing.assert_allclose(predicted.iloc[:, 1:], model.predict_proba(new))
    assert call([*words, "--seed", "1"]) == 2


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    columns = mixed_columns(80)
    weft.auto.fit(columns, "y", minutes=5, trials=1, models="linear", out=tmp_path / "a")
    with pytest.raises(UsageError, match="a run of this table, got one of another"):
        weft.auto.fit(mixed_columns(90), "y", minutes=5, trials=1, models="linear", out=tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "diary.txt").write_text("mine")
    with pytest.raises(UsageError, match="a new folder or that of a run, got"):
        weft.auto.fit(columns, "y", minutes=5, trials=1, models="linear", out=tmp_path / "b")
    with pytest.raises(ModelError, match=r"must hold a finished run of weft auto, got no model\.pkl"):
        weft.auto.load(tmp_path / "b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "nope"], "--target must be a column of the table, got 'nope'"),
        (["--target", "y", "--minutes", "0"], "--minutes must be a number above 0"),
        (["--target", "y", "--model", "svm"], "--model must be one of linear"),
        (["--target", "y", "--time", "city"], "--time must be a column of dates or numbers, got text"),
        (["--target", "city", "--metric", "auc"], "--metric auc must have 2 classes, got 4"),
    ],
)
def test_wrong_commands_end_with_a_sentence(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_csv(tmp_path / "t.csv", mixed_columns(80))
    assert call(["auto", str(table), *words, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_table_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    for name, message in (
        ("t.xlsx", "must end in one of"),
        ("none.csv", "must be a file, got nothing there"),
    ):
        assert call(["auto", str(tmp_path / name), "--target", "y"]) == 2
        assert message in capsys.readouterr().err
