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
from weft.tune.results.acting import widened
from weft.tune.results.export import best_config, to_csv
from weft.tune.results.insights import THRESHOLDS, insights
from weft.tune.space.domains import FloatRange, LogRange
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


def test_interactions_are_what_no_sum_explains() -> None:
    both = run(lambda t: (math.log10(t["lr"]) + 2) * (t["noise"] - 0.5), 60).interactions()
    apart = run(lambda t: abs(math.log10(t["lr"]) + 2) + 3 * t["noise"], 60).interactions()
    assert {both[0].first, both[0].second} == {"lr", "noise"}
    assert both[0].share > 0.3 > apart[0].share
    assert both[0].low <= both[0].share <= both[0].high <= 1
    with pytest.raises(StudyError, match="interactions must have at least 8 completed trials, got 3"):
        run(lambda t: 1.0, 3).interactions()


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


def test_a_study_of_optuna_whose_parameters_depend_on_others_is_taken_over(tmp_path: Path) -> None:
    def objective(trial: Any) -> tuple[float, float]:
        kind = trial.suggest_categorical("kind", ["wide", "deep"])
        size = trial.suggest_float("width", 1, 8) if kind == "wide" else trial.suggest_int("depth", 1, 4)
        trial.set_user_attr("squared", size**2)
        return size, -size

    url = f"sqlite:///{tmp_path}/studies.db"
    theirs = optuna.create_study(storage=url, directions=["maximize", "minimize"])
    theirs.optimize(objective, n_trials=8)
    back = tune.Study.from_optuna(url)
    assert [t.params for t in back.trials] == [t.params for t in theirs.trials]
    assert [list(t.values or ()) for t in back.trials] == [t.values for t in theirs.trials]
    assert [t.user_attrs for t in back.trials] == [t.user_attrs for t in theirs.trials]
    assert {t.number for t in back.front} >= {t.number for t in theirs.best_trials}
    back.optimize(objective, trials=3)
    assert len(back.trials) == 11
    back.to_optuna(url, "again")
    assert len(optuna.load_study(study_name="again", storage=url).trials) == 11


# -- insights that act -----------------------------------------------------------------------------------------------


def acting(fit: Any, rule: str, trials: int = 45, folder: Path | None = None, **space: Any) -> tune.Study:
    """Return a study in which one rule may act."""
    study = tune.Study(
        space, fit, minimize="loss", search="random", act={rule: True}, failures=1000, folder=folder
    )
    return study.optimize(trials=trials)


def test_a_range_whose_edge_is_best_is_widened(tmp_path: Path) -> None:
    study = acting(lambda t: (t["x"] - 3) ** 2, "edge", 140, tmp_path / "study", x="float:0:1")
    study.close()
    wide = study.state.space.domains["x"]
    assert isinstance(wide, FloatRange)
    assert wide.high > 1
    assert max(t.params["x"] for t in study.trials) > 1
    assert any(one.rule == "acted" and "x is float:0" in one.text for one in study.insights())
    assert study.state.widened["x"] <= 4
    with tune.Study.load(tmp_path / "study") as again:  # the journal keeps it
        assert again.state.space.domains == study.state.space.domains
    down = widened(tune.log(1e-3, 1e-1), "downward")
    assert isinstance(down, LogRange)
    assert (down.low, down.high) == pytest.approx((1e-3 / 10**0.5, 1e-1))
    assert widened(tune.integer(1, 9), "downward") == tune.integer(0, 9)
    assert widened(tune.integer(0, 8), "downward") is None
    assert widened(tune.integer(16, 512, 16), "downward") == tune.integer(0, 512, 16)
    assert widened(tune.integer(10, 50, 20), "upward") == tune.integer(10, 70, 20)
    assert widened(tune.choice(["a", "b"]), "upward") is None


def test_points_stay_below_what_diverged() -> None:
    study = acting(lambda t: math.nan if t["lr"] > 1e-2 else t["lr"], "divergence", lr="log:1e-5:1")
    bound = study.state.below["lr"]
    first = next(t.number for t in study.trials if t.number >= 10)
    assert all(t.params["lr"] < bound for t in study.trials if t.number > first + 9)
    assert bound > 1e-2


def test_a_parameter_that_does_not_matter_is_fixed() -> None:
    study = acting(
        lambda t: abs(math.log10(t["lr"]) + 2), "no-matter", 60, lr="log:1e-5:1", noise="float:0:1"
    )
    assert set(study.state.fixed) == {"noise"}
    assert len({t.params["noise"] for t in study.trials[-10:]}) == 1
    with pytest.raises(StudyError, match=r"act must name rules among edge, .*, got edges"):
        acting(lambda t: 1.0, "edges", x="float:0:1")


def test_trials_that_overfit_are_stopped() -> None:
    def train(trial: Any) -> None:
        for step in range(1, 21):
            trial.report(abs(step - 5) + trial["x"], step)
            if trial.should_prune():
                raise tune.TrialPruned

    study = tune.Study(
        {"x": "float:0:1"},
        train,
        minimize="loss",
        search="random",
        act={"overfitting": True},
        resource={"max": 20},
    )
    study.optimize(trials=2)
    assert [(t.state, t.step) for t in study.trials] == [("stopped", 11)] * 2
    assert "best at 5, worse since" in study.trials[0].message
