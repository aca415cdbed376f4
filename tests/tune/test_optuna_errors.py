"""Programs written for Optuna: its errors, its odd values and choices, its ends of trials and of time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna import pruners, samplers, terminator

import weft.tune as tune
from weft.tune.space.domains import SpaceError

pytestmark = pytest.mark.filterwarnings(
    "ignore::optuna.exceptions.ExperimentalWarning", "ignore::FutureWarning"
)
FAIL = optuna.trial.TrialState.FAIL


def bowl(trial: Any) -> float:
    return float((trial.suggest_float("x", -5, 5) - 2) ** 2)


def test_errors_are_of_the_kinds_that_optunas_programs_catch(tmp_path: Path) -> None:
    study = tune.create_study(sampler="random", storage=tmp_path, study_name="a")
    for name in ("best_trial", "best_params", "best_value"):
        with pytest.raises(ValueError, match="to have a best, got none"):
            getattr(study, name)
    with pytest.raises(RuntimeError, match="stop must be called by an objective"):
        study.stop()
    with pytest.raises(KeyError, match=r"^a study must be in .*missing, got none; see weft studies"):
        tune.load_study(study_name="missing", storage=tmp_path)
    with pytest.raises(KeyError, match="a study must exist, got missing"):
        tune.delete_study(study_name="missing", storage=tmp_path)
    with pytest.raises(
        optuna.exceptions.DuplicatedStudyError, match="a new study must have a name of its own"
    ):
        tune.create_study(storage=tmp_path, study_name="a")
    trial = study.ask()
    study.tell(trial, 1.0)
    with pytest.raises(ValueError, match="must be running to be told of"):
        study.tell(trial, 2.0)
    with pytest.raises(TypeError, match="a report must be numbers at a whole step"):
        study.ask().report(None, 7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have a step or be logarithmic"):
        study.ask().suggest_int("n", 1, 5, step=2, log=True)


def test_an_objective_may_not_run_its_own_study() -> None:
    def objective(trial: Any) -> float:
        with pytest.raises(RuntimeError, match="optimize must be called once at a time"):
            trial.study.optimize(bowl, n_trials=1)
        inner = tune.create_study(sampler="random")
        inner.optimize(bowl, n_trials=2)
        return inner.best_value

    study = tune.create_study(sampler="random")
    study.optimize(objective, n_trials=2)
    assert len(study.trials) == 2


def test_a_name_has_one_kind_of_values() -> None:
    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 0, 1 + trial.number)
        assert trial.suggest_float("x", 0, 99) == x
        with pytest.raises(ValueError, match="x must have one kind of values, got int:0:1 after float:"):
            trial.suggest_int("x", 0, 1)
        return x

    study = tune.create_study(sampler="random")
    study.optimize(objective, n_trials=3)
    with pytest.raises(SpaceError, match="x must have one kind of values, got a,b after float:"):
        study.ask().suggest_categorical("x", ["a", "b"])


def test_trials_without_a_value_fail_and_the_study_goes_on() -> None:
    study = tune.create_study(sampler="random")
    study.optimize(lambda trial: None if trial.number < 2 else 1.0, n_trials=4)
    assert [trial.state == FAIL for trial in study.trials] == [True, True, False, False]
    assert study.trials[0].message == "the function must return value, got None"
    with pytest.raises(
        ValueError, match="all of the first 3 trials failed; the last of them: the function must"
    ):
        tune.create_study(sampler="random").optimize(lambda trial: None, n_trials=9)


def test_errors_that_are_caught_end_no_study() -> None:
    def wrong(trial: Any) -> float:
        raise ValueError("no")

    study = tune.create_study(sampler="random")
    for caught in (ValueError, (ArithmeticError, ValueError)):
        study.optimize(wrong, n_trials=7, catch=caught)
    assert len(study.trials) == 14
    assert all(trial.state == FAIL for trial in study.trials)
    with pytest.raises(ValueError, match="no"):
        study.optimize(wrong, n_trials=5, catch=(ArithmeticError,))
    assert len(study.trials) == 15


def test_trials_that_run_when_the_time_is_over_count() -> None:
    def objective(trial: Any) -> float:
        time.sleep(0.4)
        return bowl(trial)

    study = tune.create_study(sampler="random")
    study.optimize(objective, timeout=0.2, n_jobs=2)
    assert [trial.state for trial in study.trials] == ["completed", "completed"]
    assert study.state.message.startswith("its time of 20")


def test_a_function_that_looks_ends_when_the_time_is_over() -> None:
    def objective(trial: Any) -> float:
        for step in range(1, 200):
            time.sleep(0.02)
            trial.report(1 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 0.0

    study = tune.create_study(sampler="random")
    study.optimize(objective, timeout=0.2)
    assert [trial.state for trial in study.trials] == ["stopped"]
    assert study.trials[0].value == study.trials[0].curve[-1]


def test_choices_are_of_any_kind(tmp_path: Path) -> None:
    def small(x: float) -> float:
        return x / 2

    seen: list[Any] = []

    def objective(trial: Any) -> float:
        layers = trial.suggest_categorical("layers", [(8,), (16, 8), [4, [2, 2]]])
        kind = trial.suggest_categorical("kind", [dict, list, small])
        scale = trial.suggest_categorical("scale", np.array([0.5, 1.5]))
        seen.append((layers, kind))
        return float(len(layers) * scale)

    with tune.create_study(storage=tmp_path, study_name="a", sampler="tpe") as study:
        study.enqueue_trial({"layers": [16, 8], "scale": np.float64(1.5)})
        study.enqueue_trial({"layers": (4, (2, 2)), "kind": "list"})
        study.optimize(objective, n_trials=14)
        assert seen[0][0] == (16, 8)
        assert seen[1] == ([4, [2, 2]], list)
        assert {kind for _, kind in seen} == {dict, list, small}
        assert study.trials[0].params["layers"] == (16, 8)
        assert study.trials[1].params["kind"] == "list"
        assert objective(study.best_trial) == study.best_value
        assert study.importances()
        study.export(tmp_path / "a.csv")
    with tune.load_study(study_name="a", storage=tmp_path) as again:
        assert again.trials[0].params["layers"] == (16, 8)
        again.optimize(objective, n_trials=2)
        assert len(again.to_optuna().trials) == 16
        again.to_optuna(f"sqlite:///{tmp_path}/a.db")
    back = tune.Study.from_optuna(f"sqlite:///{tmp_path}/a.db")
    assert back.trials[0].params["layers"] == "16,8"
    same = tune.create_study(sampler=samplers.TPESampler(seed=1))
    same.optimize(objective, n_trials=3)


def test_names_may_be_any_text(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        size = trial.suggest_int("layer/0 units (log)", 1, 8)
        return float(size * trial.suggest_float("\u03b8", 0, 1))

    with tune.create_study(storage=tmp_path, study_name="a") as study:
        study.optimize(objective, n_trials=12)
        assert study.best_params.keys() == {"layer/0 units (log)", "\u03b8"}
        study.to_optuna(f"sqlite:///{tmp_path}/a.db")
    with tune.load_study(storage=tmp_path) as again:
        assert len(again.optimize(objective, n_trials=1).trials) == 13
    back = tune.Study.from_optuna(f"sqlite:///{tmp_path}/a.db")
    assert len(back.optimize(objective, n_trials=1).trials) == 13


def test_numbers_of_numpy_are_numbers() -> None:
    study = tune.create_study(sampler="random")
    study.enqueue_trial({"x": np.float32(0.5), "n": np.int64(2)})
    study.optimize(lambda t: np.float32(t.suggest_float("x", 0, 1) + t.suggest_int("n", 1, 3)), n_trials=1)
    assert study.trials[0].params == {"x": 0.5, "n": 2}
    assert type(study.trials[0].params["n"]) is int
    ours = tune.Study({"n": "int:1:3", "size": [[1, 2], [3]]})
    assert ours.add({"n": np.int64(3), "size": [3]}).params == {"n": 3, "size": (3,)}


def test_samplers_and_pruners_are_exchanged_between_calls() -> None:
    study = tune.create_study(sampler=samplers.RandomSampler(seed=0))
    study.optimize(bowl, n_trials=2)
    study.sampler = samplers.PartialFixedSampler({"x": 3.0}, study.sampler)
    study.pruner = pruners.ThresholdPruner(upper=0.0)
    assert isinstance(study.pruner, pruners.ThresholdPruner)

    def reporting(trial: Any) -> float:
        trial.report(bowl(trial), 1)
        if trial.should_prune():
            raise tune.TrialPruned
        return 0.0

    study.optimize(reporting, n_trials=2)
    assert [trial.params["x"] for trial in study.trials[2:]] == [3.0, 3.0]
    assert [trial.state for trial in study.trials[2:]] == ["stopped", "stopped"]
    study.sampler = "random"
    study.optimize(bowl, n_trials=1)
    assert study.trials[-1].params["x"] != 3.0


def test_tools_note_things_about_trials() -> None:
    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 0, 1)
        terminator.report_cross_validation_scores(trial, [x, x + 0.1, x + 0.2])
        assert trial.relative_params == {}
        return x

    study = tune.create_study(sampler=samplers.RandomSampler(seed=0))
    callback: Any = terminator.TerminatorCallback()
    study.optimize(objective, n_trials=6, callbacks=[callback])
    assert len(study.trials) == 6
    assert study.best_trial == study.trials[study.best_trial.number]
    assert any("cv_scores" in name for name in study.best_trial.system_attrs)


def test_studies_of_one_process_share_a_folder(tmp_path: Path) -> None:
    first = tune.create_study(storage=tmp_path, study_name="a", sampler="random")
    second = tune.load_study(storage=tmp_path)
    second.optimize(bowl, n_trials=2)
    assert len(first.trials) == 2
    second.close()
    first.optimize(bowl, n_trials=1)
    first.close()
    with tune.create_study(storage=tmp_path, study_name="a", sampler="random", load_if_exists=True) as third:
        assert len(third.trials) == 3
    with pytest.raises(ValueError, match="a study must be open to be changed, got a, which was closed"):
        third.ask()
    unnamed = tune.create_study(storage=tmp_path, sampler="random")
    assert unnamed.study_name.startswith("no-name-")
    with pytest.raises(
        ValueError, match="a study to load must be named where there are several, got a, no-name"
    ):
        tune.load_study(storage=tmp_path)


def test_studies_of_a_folder_are_summed_up_and_copied(tmp_path: Path) -> None:
    with tune.create_study(storage=tmp_path / "one", study_name="a", direction="maximize") as study:
        study.optimize(bowl, n_trials=3)
        best = study.best_value
    tune.copy_study(
        from_study_name="a", from_storage=tmp_path / "one", to_storage=tmp_path / "one", to_study_name="b"
    )
    found = tune.get_all_study_summaries(storage=tmp_path / "one")
    assert [(one.study_name, one.n_trials, one.direction) for one in found] == [
        ("a", 3, "maximize"),
        ("b", 3, "maximize"),
    ]
    assert found[1].best_trial is not None
    assert found[1].best_trial.value == best
    with tune.load_study(storage=tmp_path / "one", study_name="b") as copy:
        copy.optimize(bowl, n_trials=1)
        assert copy.study_name == "b"
    with pytest.raises(
        optuna.exceptions.DuplicatedStudyError, match="a copy must have a name of its own, got b"
    ):
        tune.copy_study(
            from_study_name="a", from_storage=tmp_path / "one", to_storage=tmp_path / "one", to_study_name="b"
        )
