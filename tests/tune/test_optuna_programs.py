"""Programs written for Optuna: its samplers and pruners as objects, its storages' arguments, callbacks and trials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna import pruners, samplers

import weft.tune as tune
from weft.errors import UsageError
from weft.tune.space.domains import SpaceError
from weft.tune.study.config import StudyError

pytestmark = pytest.mark.filterwarnings(
    "ignore::optuna.exceptions.ExperimentalWarning", "ignore::FutureWarning"
)
SAMPLERS: dict[str, Callable[[], Any]] = {
    "random": lambda: samplers.RandomSampler(seed=3),
    "tpe": lambda: samplers.TPESampler(seed=3, n_startup_trials=5),
    "grouped": lambda: samplers.TPESampler(seed=3, multivariate=True, group=True),
    "quasi": lambda: samplers.QMCSampler(seed=3),
    "cmaes": lambda: samplers.CmaEsSampler(seed=3),
    "nsga2": lambda: samplers.NSGAIISampler(seed=3, population_size=8),
    "partial": lambda: samplers.PartialFixedSampler({"x": 1.5}, samplers.RandomSampler(seed=1)),
}
PRUNERS: dict[str, Callable[[], Any]] = {
    "none": pruners.NopPruner,
    "median": pruners.MedianPruner,
    "halving": lambda: pruners.SuccessiveHalvingPruner(min_resource=1),
    "hyperband": lambda: pruners.HyperbandPruner(min_resource=1, max_resource=9),
    "percentile": lambda: pruners.PercentilePruner(25.0),
    "threshold": lambda: pruners.ThresholdPruner(upper=9),
    "patient": lambda: pruners.PatientPruner(pruners.MedianPruner(), 2),
}


def curve(trial: Any) -> float:
    """Return a value that falls with each step, from parameters of which one is asked for at times."""
    x, n = trial.suggest_float("x", -5, 5), trial.suggest_int("n", 1, 8, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    y = trial.suggest_float("y", 0.01, 1, log=True) if kind == "a" else 0.5
    value = 0.0
    for step in range(9):
        value = float((x - 1) ** 2 + y + n / 8 + 1 / (step + 1))
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value


def known(trials: list[Any]) -> list[Any]:
    return [(t.params, t.intermediate_values) for t in trials]


@pytest.mark.parametrize(
    ("sampler", "pruner"), [*((one, "median") for one in SAMPLERS), *(("tpe", one) for one in PRUNERS)]
)
def test_objects_of_optunas_do_here_what_they_do_there(sampler: str, pruner: str, tmp_path: Path) -> None:
    theirs = optuna.create_study(sampler=SAMPLERS[sampler](), pruner=PRUNERS[pruner](), study_name="weft")
    theirs.optimize(curve, n_trials=20)
    ours = tune.create_study(
        sampler=SAMPLERS[sampler](), pruner=PRUNERS[pruner](), storage=tmp_path, study_name="a"
    )
    with ours:
        ours.optimize(curve, n_trials=20)
        assert known(ours.trials) == known(theirs.trials)
        assert all(mine.state == one.state for mine, one in zip(ours.trials, theirs.trials, strict=True))
        assert ours.best_value == theirs.best_value


def test_a_study_of_objects_goes_on_when_they_are_given_again(tmp_path: Path) -> None:
    def made(**more: Any) -> tune.Study:
        return tune.create_study(
            sampler=samplers.CmaEsSampler(seed=1), pruner=pruners.SuccessiveHalvingPruner(),
            storage=tmp_path, study_name="kept", **more,
        )  # fmt: skip

    with made() as study:
        study.optimize(curve, n_trials=12)
        rungs = [t.attrs.get("completed_rung_0") for t in study.trials]
        assert any(rungs), "what the pruner notes is kept"
    with pytest.raises(StudyError, match="a new study must have a name of its own, got kept"):
        made()
    with made(load_if_exists=True) as again:
        assert [t.attrs.get("completed_rung_0") for t in again.trials] == rungs
        again.optimize(curve, n_trials=3)
        assert len(again.trials) == 15
    with tune.load_study(study_name="kept", storage=tmp_path) as bare:
        assert bare.best_value == min(t.value for t in bare.trials if t.value is not None)
        with pytest.raises(
            StudyError, match=r"must be given it again to go on, got none; make .* CmaEsSampler"
        ):
            bare.ask()
    whole = tune.load_study(
        study_name="kept", storage=tmp_path, sampler=samplers.CmaEsSampler(), pruner=pruners.NopPruner()
    )
    with whole:
        whole.optimize(curve, n_trials=1)
    with pytest.raises(StudyError, match="must keep the settings it began with, got another search"):
        tune.create_study(sampler="tpe", storage=tmp_path, study_name="kept", load_if_exists=True)


@pytest.mark.parametrize("kind", ["grid", "brute"])
def test_a_sampler_that_has_suggested_all_ends_the_study(kind: str) -> None:
    def objective(trial: Any) -> float:
        return float(trial.suggest_int("a", 0, 2) + trial.suggest_int("b", 0, 1))

    made: Any = (
        samplers.GridSampler({"a": [0, 1, 2], "b": [0, 1]})
        if kind == "grid"
        else samplers.BruteForceSampler()
    )
    study = tune.create_study(sampler=made)
    study.optimize(objective)
    assert sorted((t.params["a"], t.params["b"]) for t in study.trials) == [
        (a, b) for a in range(3) for b in range(2)
    ]
    assert study.state.state == "completed"


def test_constraints_func_of_a_sampler_keeps_the_best_within() -> None:
    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 0, 1)
        trial.set_user_attr("short", 0.5 - x)
        return x

    def constraints(trial: Any) -> tuple[float]:
        return (trial.user_attrs["short"],)

    def sampler() -> Any:
        return samplers.TPESampler(seed=2, constraints_func=constraints)

    ours, theirs = tune.create_study(sampler=sampler()), optuna.create_study(sampler=sampler())
    for study in (ours, theirs):
        study.optimize(objective, n_trials=30)
    assert [t.params for t in ours.trials] == [t.params for t in theirs.trials]
    assert ours.best_params == theirs.best_params
    assert ours.best_params["x"] >= 0.5


def test_callbacks_of_optunas_see_states_and_directions_as_they_expect() -> None:
    seen: list[bool] = []

    def callback(study: Any, trial: Any) -> None:
        seen.append(trial.state == optuna.trial.TrialState.COMPLETE and trial.state.is_finished())
        assert study.direction == optuna.study.StudyDirection.MAXIMIZE
        assert study.direction != optuna.study.StudyDirection.MINIMIZE
        if len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE])) >= 4:
            study.stop()

    def objective(trial: Any) -> float:
        assert trial.study.study_name == "study"
        assert trial.datetime_start is not None
        if trial.number == 1:
            raise tune.TrialPruned
        return float(trial.suggest_float("x", 0, 1))

    study = tune.create_study(direction=optuna.study.StudyDirection.MAXIMIZE, sampler="random")
    study.optimize(objective, callbacks=[callback])
    assert seen == [True, False, True, True, True]
    theirs: Any = optuna.study.MaxTrialsCallback(6, states=(optuna.trial.TrialState.COMPLETE,))
    study.optimize(objective, callbacks=[theirs])
    assert len(study.get_trials(states=["completed"])) == 6


def test_points_are_queued_before_the_objective_has_named_its_parameters() -> None:
    def objective(trial: Any) -> float:
        return float(trial.suggest_float("x", -5, 5) + trial.suggest_int("n", 1, 9))

    study = tune.create_study(sampler="tpe")
    study.enqueue_trial({"x": 1.25}, user_attrs={"why": "a guess"})
    study.enqueue_trial({"x": 1.25}, skip_if_exists=True)
    study.enqueue_trial({"x": -2.0, "n": 3})
    study.optimize(objective, n_trials=4)
    assert [t.params["x"] for t in study.trials[:2]] == [1.25, -2.0]
    assert study.trials[0].user_attrs == {"why": "a guess"}
    assert study.trials[1].params == {"x": -2.0, "n": 3}
    assert len(study.trials) == 4
    study.enqueue_trial({"x": 99.0})
    with pytest.raises(SpaceError, match=r"x must be in float:-5:5, got 99.0 in the point of trial 4"):
        study.optimize(objective, n_trials=1)
    given = tune.create_study(sampler="random", points=[{"x": 0.5}])
    given.optimize(objective, n_trials=1)
    assert given.trials[0].params["x"] == 0.5


def test_trials_of_optunas_are_added_and_known_to_the_search(tmp_path: Path) -> None:
    distributions: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(0, 1)}
    study = tune.create_study(storage=tmp_path, study_name="more")
    with study:
        study.add_trials(
            [
                optuna.create_trial(params={"x": 0.25}, distributions=distributions, value=0.5),
                optuna.create_trial(
                    params={"x": 0.5}, distributions=distributions, state=optuna.trial.TrialState.PRUNED,
                    intermediate_values={1: 3.0}, user_attrs={"k": 1},
                ),
            ]
        )  # fmt: skip
        waiting = optuna.create_trial(state=optuna.trial.TrialState.RUNNING)
        with pytest.raises(StudyError, match="a trial must have ended to be added, got one that is RUNNING"):
            study.add_trial(waiting)
        assert study.best_params == {"x": 0.25}
        assert study.trials[1].user_attrs == {"k": 1}
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        assert len(study.trials) == 4
    warm = tune.create_study(warm_start=study)
    assert [t.params for t in warm.trials] == [t.params for t in study.trials if t.state == "completed"]


def test_ask_and_tell_take_optunas_words() -> None:
    study = tune.create_study(sampler="random")
    trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1), "n": "int:1:3"})
    assert trial.params.keys() == {"x", "n"}
    trial.report(0.5, 1)
    assert study.tell(trial, state=optuna.trial.TrialState.PRUNED).state == "stopped"
    assert study.tell(trial, 3.0, skip_if_finished=True).values is None
    assert study.tell(study.ask(), state=tune.TrialState.FAIL).state == "failed"
    with pytest.raises(StudyError, match="a trial must end as completed, stopped or failed, got 'lost'"):
        study.tell(study.ask(), state="lost")


@pytest.mark.parametrize(
    ("settings", "must"),
    [
        (
            {"sampler": "tpe", "search": "gp"},
            "search must be given once, got it by its name in Optuna, sampler",
        ),
        (
            {"sampler": object()},
            "search must be a name, a mapping with one, or an object with a method suggest",
        ),
        ({"pruner": pruners.MedianPruner}, "schedule must be a name, .* or an object with a method decide"),
        ({"storage": "sqlite:///a.db", "study_name": "a"}, "storage must be a folder, got 'sqlite:///a.db'"),
        ({"direction": "up"}, "a direction must be minimize or maximize, got 'up'"),
        ({"direction": "minimize", "directions": ["minimize"]}, "direction or directions, got both"),
    ],
)
def test_arguments_that_cannot_be_used_are_told(settings: dict[str, Any], must: str) -> None:
    with pytest.raises(StudyError, match=must):
        tune.create_study(**settings)


def test_a_search_and_a_schedule_of_ones_own_are_objects() -> None:
    class Halves:
        def suggest(self, state: Any, number: int) -> Any:
            from weft.tune.samplers.base import Suggestion

            return None if number == 3 else Suggestion({"x": 0.5**number})

    class OneByOne:
        def decide(self, state: Any, free: int, starts: int) -> list[Any]:
            from weft.tune.schedulers.actions import StartTrial

            return [StartTrial()] if free and starts and not state.count("running") else []

    study = tune.Study({"x": "float:0:1"}, search=Halves(), schedule=OneByOne())
    study.optimize(lambda trial: trial["x"], trials=9)
    assert [t.params["x"] for t in study.trials] == [1.0, 0.5, 0.25]


def test_optunas_importances_plots_and_trials_of_a_study_of_ours() -> None:
    def objective(trial: Any) -> float:
        value = float(trial.suggest_float("x", -5, 5) ** 2 + trial.suggest_categorical("k", [0.0, 0.1]))
        trial.report(value + 1, 1)
        trial.set_constraint("small", value - 20)
        assert trial.distributions["x"] == optuna.distributions.FloatDistribution(-5, 5)
        return value

    study = tune.create_study(sampler=samplers.RandomSampler(seed=1), pruner=pruners.MedianPruner())
    study.optimize(objective, n_trials=20)
    assert isinstance(study.sampler, samplers.RandomSampler)
    assert isinstance(study.pruner, pruners.MedianPruner)
    theirs = study.to_optuna()
    assert theirs.best_params == study.best_params
    assert [t.params for t in theirs.best_trials] == [t.params for t in study.best_trials]
    assert [t.distributions for t in theirs.trials] == [t.distributions for t in study.trials]
    assert [t.datetime_complete for t in theirs.trials] == [t.datetime_complete for t in study.trials]
    assert [t.constraints for t in theirs.trials] == [t.constraints for t in study.trials]
    ours: Any = study  # as a callback of theirs would take it
    evaluator = optuna.importance.MeanDecreaseImpurityImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(ours, evaluator=evaluator)
    assert found.keys() == {"x", "k"}
    assert found["x"] > 0.8


def test_the_best_trial_is_evaluated_again() -> None:
    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 0, 1)
        trial.report(x, 1)
        trial.set_user_attr("x", x)
        return 0.0 if trial.should_prune() else x

    study = tune.create_study(sampler="random")
    study.optimize(objective, n_trials=3, n_jobs=-1)
    assert objective(study.best_trial) == study.best_value
    with pytest.raises(UsageError, match=r"trial \d must have the parameter y, got x; call the objective"):
        study.best_trial.suggest_int("y", 0, 1)


def test_metrics_have_names_in_tables() -> None:
    study = tune.create_study(directions=["minimize", "maximize"], sampler="random")
    assert study.metric_names is None
    with pytest.raises(StudyError, match="metric_names must be one for each of value0, value1, got "):
        study.set_metric_names(["loss"])
    study.set_metric_names(["loss", "accuracy"])
    study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=1)
    assert {"values_loss", "values_accuracy"} <= set(study.trials_dataframe().columns)
    assert study.to_optuna().metric_names == study.metric_names == ["loss", "accuracy"]


def test_studies_of_a_storage_are_listed_and_removed(tmp_path: Path) -> None:
    for name in ("b", "a"):
        tune.create_study(storage=tmp_path, study_name=name).close()
    assert tune.get_all_study_names(tmp_path) == ["a", "b"]
    with (
        tune.load_study(study_name="a", storage=tmp_path),
        pytest.raises(StudyError, match="study a must not be in use"),
    ):
        tune.delete_study(study_name="a", storage=tmp_path)
    tune.delete_study(study_name="a", storage=tmp_path)
    assert tune.get_all_study_names(storage=tmp_path) == ["b"]
