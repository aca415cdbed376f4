"""Results of studies: insights with thresholds, importances with confidence, exports and Optuna's storages."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import optuna
import pyarrow.parquet
import pytest
import yaml

import weft.tune as tune
from weft.tune.results.export import best_config, to_csv
from weft.tune.results.insights import THRESHOLDS, insights
from weft.tune.study.config import StudyError
from weft.tune.study.study import Study

SPACE = {"lr": "log:1e-4:1", "noise": "float:0:1"}


def told(study: Study) -> dict[str, Any]:
    return {one.rule: one for one in insights(study.state)}


def run(objective: Any, trials: int = 30, **more: Any) -> Study:
    return tune.Study(
        {**SPACE, **more.pop("space", {})}, objective, minimize="loss", search="random", **more
    ).optimize(trials=trials)


def test_divergence_names_the_parameter_behind_it() -> None:
    study = run(lambda t: math.nan if t["lr"] > 0.1 else t["lr"], 40)
    found = told(study)["divergence"]
    assert found.severity == "warning"
    assert "lr from 0." in found.text
    assert found.advice.startswith("narrow lr to log:0.0001:")
    assert found.evidence["threshold"] == THRESHOLDS["diverged_share"]
    assert "divergence" not in told(run(lambda t: t["lr"]))


def test_the_edge_of_a_range_asks_for_a_wider_one() -> None:
    study = tune.Study(SPACE, minimize="loss", search="random")
    for lr in (0.9, 0.95, 0.99, 0.85, 0.8, *(10.0**-i for i in range(1, 4)), 0.02, 0.03):
        made = study.add({"lr": lr, "noise": 0.5})
        study.tell(study.ask().number, 1 / made.params["lr"])
    assert told(study)["edge"].advice == "widen lr upward"


def test_plateaus_and_what_does_not_matter() -> None:
    study = run(lambda t: max(0.2, abs(math.log10(t["lr"]) + 2)), 80)
    found = told(study)
    assert "plateau" in found
    assert found["no-matter"].text.startswith("noise makes at most")
    assert "overfitting" not in found
    acting = run(lambda t: 0.5, 200, act={"plateau": True})
    assert len(acting.trials) == 2 * THRESHOLDS["plateau_trials"]
    assert "plateau" in acting.state.message


def test_overfitting_and_flags_that_are_ignored() -> None:
    def curve(trial: Any) -> None:
        for step in range(1, 11):
            trial.report(abs(step - 4) / 10 + 0.1, step)

    found = told(run(curve, 4))
    assert "was best at 4 of 10" in found["overfitting"].text
    assert "same curve to the last digit, though lr, noise differ" in found["ignored-flag"].text


def test_a_promoted_trial_that_begins_again_is_told_of() -> None:
    study = tune.Study({"x": "float:0:1"}, minimize="loss", search="random")
    core = study.core
    trial = study.ask().number
    for step in (1, 2, 3):
        core.reported(trial, step, {"loss": 1 / step})
    core.lost(trial, "killed")
    study.ask()
    core.reported(trial, 1, {"loss": 1.0}, fresh=False)  # a file that is read again
    assert "started-over" not in told(study)
    core.reported(trial, 1, {"loss": 1.0})
    assert "WEFT_CHECKPOINT" in told(study)["started-over"].advice


def test_importances_have_confidence() -> None:
    found = run(lambda t: abs(math.log10(t["lr"]) + 2) + 0.05 * t["noise"], 40).importances()
    assert [one.name for one in found] == ["lr", "noise"]
    assert found[0].low <= found[0].share <= 1
    assert found[0].low > found[1].high
    assert sum(one.share for one in found) == pytest.approx(1)
    with pytest.raises(StudyError, match="at least 8 completed trials"):
        run(lambda t: 1.0, 3).importances()


def test_exports_hold_every_trial(tmp_path: Path) -> None:
    study = run(lambda t: t["lr"], 5, space={"k": ["a", 1, True]})
    rows = list(csv.DictReader(io.StringIO(to_csv(study.state))))
    assert [float(row["values.loss"]) for row in rows] == [t.values[0] for t in study.trials if t.values]
    for name in ("a.csv", "a.json", "a.parquet"):
        study.export(tmp_path / name)
    assert len(json.loads((tmp_path / "a.json").read_text())["trials"]) == 5
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").num_rows == 5
    with pytest.raises(StudyError, match=r"must end in \.csv"):
        study.export(tmp_path / "a.xls")


def test_the_best_parameters_are_a_config_file(tmp_path: Path) -> None:
    study = run(lambda t: t["lr"], 5)
    assert yaml.safe_load(best_config(study.state)) == study.best_params
    (tmp_path / "base.yaml").write_text("lr: 1\nmodel: {width: 3}\n")
    based = run(lambda t: t["lr"], 5, config=str(tmp_path / "base.yaml"))
    assert yaml.safe_load(best_config(based.state)) == {**based.best_params, "model": {"width": 3}}


def test_studies_go_to_optuna_and_back(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        for step in (1, 2):
            trial.report(trial["lr"] / step, step)
        return float(trial["lr"])

    study = run(objective, 6, space={"batch": "ordered:8,16,32"})
    url = f"sqlite:///{tmp_path}/studies.db"
    study.to_optuna(url, "ours")
    theirs = optuna.load_study(study_name="ours", storage=url)
    assert theirs.best_value == study.best_value
    assert theirs.trials[0].intermediate_values == dict(
        zip(study.trials[0].steps, study.trials[0].curve, strict=True)
    )
    back = tune.Study.from_optuna(url, "ours")
    assert back.best_value == study.best_value
    assert [t.values for t in back.trials] == [t.values for t in study.trials]
    with pytest.raises(StudyError, match="must not have a study ours"):
        study.to_optuna(url, "ours")
    with pytest.raises(StudyError, match="must have a study nothing"):
        tune.Study.from_optuna(url, "nothing")
