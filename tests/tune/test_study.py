"""Studies in Python: functions, Optuna's objectives, ask and tell, several metrics, journals, scikit-learn's search."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import optuna
import pytest
from sklearn.linear_model import LogisticRegression

import weft.tune as tune
from weft.errors import UsageError
from weft.tune.results.views import study_view
from weft.tune.space.domains import SpaceError
from weft.tune.study.config import StudyError
from weft.tune.study.journal import FILE, StudyJournal, read_events
from weft.tune.study.state import SearchState

SPACE = {"x": tune.uniform(-5, 5), "k": ["a", "b"]}


def bowl(trial: Any) -> float:
    return float((trial["x"] - 1) ** 2 + (trial["k"] == "a"))


def objective_of_optuna(trial: Any) -> float:
    """An objective as Optuna's documentation writes them."""
    x = trial.suggest_float("x", -5, 5)
    kind = trial.suggest_categorical("kind", ["plain", "deep"])
    depth = trial.suggest_int("depth", 1, 8, log=True) if kind == "deep" else 0
    for step in range(1, 10):
        trial.report((x - 2) ** 2 + depth + 1 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float((x - 2) ** 2 + depth)


@pytest.mark.parametrize("search", ["random", "qmc", "tpe", "cmaes", "nsga2"])
def test_a_search_finds_a_bowl_and_a_seed_gives_the_same(search: str) -> None:
    studies = [tune.Study(SPACE, bowl, minimize="loss", search=search, seed=4) for _ in range(2)]
    for study in studies:
        study.optimize(trials=25)
    assert studies[0].best_value < 1.0
    assert [t.params for t in studies[0].trials] == [t.params for t in studies[1].trials]
    other = tune.Study(SPACE, bowl, minimize="loss", search=search, seed=5).optimize(trials=3)
    assert other.trials[0].params != studies[0].trials[0].params


def test_a_gaussian_process_runs_in_parallel() -> None:
    study = tune.Study({"x": "float:-5:5"}, minimize="loss", search={"name": "gp", "startup": 3}, seed=1)
    asked = [study.ask() for _ in range(3)]
    for trial in asked:
        study.tell(trial, (trial["x"] - 1) ** 2)
    together = [study.ask() for _ in range(2)]
    assert abs(together[0]["x"] - together[1]["x"]) > 1e-3


def test_an_objective_of_optuna_runs_unchanged() -> None:
    study = tune.create_study(direction="minimize", seed=1)
    study.optimize(objective_of_optuna, n_trials=30, timeout=600, n_jobs=1)
    assert study.best_value == study.best.value < 0.5
    with pytest.raises(StudyError, match="trials must be given once, got 3 and, by Optuna's name, 4"):
        study.optimize(objective_of_optuna, 3, n_trials=4)
    assert {t.state for t in study.trials} == {"completed"}
    halving = tune.Study(minimize="loss", schedule="asha", resource={"max": 9}, seed=1)
    halving.optimize(objective_of_optuna, 30, parallel=3)
    states = Counter(t.state for t in halving.trials)
    assert states[tune.TrialState.PRUNED] > 10
    assert all(("depth" in t.params) == (t.params["kind"] == "deep") for t in halving.trials)


def test_several_directions_are_in_the_order_of_optuna() -> None:
    study = tune.create_study(directions=["maximize", "minimize"], study_name="two", search="random")
    study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), trial.suggest_float("y", 2, 3)), 6)
    assert study.state.config.name == "two"
    assert all((t.params["x"], t.params["y"]) == t.values for t in study.trials)
    best = study.best_trials
    assert max(t.params["x"] for t in study.trials) in [t.params["x"] for t in best]
    assert min(t.params["y"] for t in study.trials) in [t.params["y"] for t in best]


@pytest.mark.parametrize("workers", [1, 3])
def test_callbacks_hear_of_each_trial_and_stop_the_study(workers: int) -> None:
    told: list[tuple[int, str]] = []

    def stop_at_three(study: Any, trial: Any) -> None:
        told.append((trial.number, trial.state))
        if len(told) == 3:
            assert study.best_trial.number in {number for number, _ in told}
            study.stop()

    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 0, 1)
        if trial.number == 1:
            raise ArithmeticError
        return x

    study = tune.create_study(search="random")
    study.optimize(
        objective, n_trials=50, n_jobs=workers, catch=(ArithmeticError,), callbacks=[stop_at_three]
    )
    assert 3 <= len(told) <= 3 + workers - 1, "those that ran went on to their end"
    assert sorted(told) == [(n, "failed" if n == 1 else "completed") for n in range(len(told))]
    assert (study.state.state, len(study.trials)) == ("stopped", len(told))
    study.optimize(objective, n_trials=2)
    assert len(study.trials) == len(told) + 2
    with pytest.raises(StudyError, match="stop must be called by"):
        study.stop()


def test_an_error_of_a_callback_ends_the_study() -> None:
    def wrong(study: Any, trial: Any) -> None:
        raise ZeroDivisionError

    study = tune.create_study(search="random")
    with pytest.raises(ZeroDivisionError):
        study.optimize(lambda t: t.suggest_float("x", 0, 1), 9, parallel=2, callbacks=[wrong])
    assert len(study.trials) <= 2


def test_an_objective_may_stop_the_study_and_asha_keeps_what_is_paused() -> None:
    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 0, 1)
        if trial.number == 5:
            study.stop()
        for step in range(1, 10):
            trial.report(x / step, step)
            if trial.should_prune():
                raise tune.TrialPruned
        return x

    study = tune.Study(minimize="loss", schedule="asha", resource={"max": 9}, seed=1)
    study.optimize(objective, 30)
    assert (study.state.state, len(study.trials)) == ("stopped", 6)
    study.optimize(objective, 3)
    assert study.state.state == "completed"


def frame_objective(trial: Any) -> float:
    x: float = trial.suggest_float("x", 0, 1)
    if trial.number == 1:
        trial.suggest_int("only_here", 1, 9)
        trial.report(7.0, 1)
        raise optuna.TrialPruned
    if trial.number == 2:
        raise ArithmeticError
    trial.set_user_attr("half", x / 2)
    return x


def test_a_frame_of_trials_is_like_optunas() -> None:
    theirs, ours = optuna.create_study(), tune.create_study(search="random")
    for one in (theirs, ours):
        one.optimize(frame_objective, n_trials=4, catch=(ArithmeticError,))
    expected, found = theirs.trials_dataframe(), ours.trials_dataframe()
    assert list(found.columns) == list(expected.columns)
    assert list(found["state"]) == list(expected["state"]) == ["COMPLETE", "PRUNED", "FAIL", "COMPLETE"]
    assert (found["value"].isna() == expected["value"].isna()).all()
    assert found["value"][1] == expected["value"][1] == 7.0
    assert {name: kind.kind for name, kind in found.dtypes.items()} == {
        n: k.kind for n, k in expected.dtypes.items()
    }
    assert list(ours.trials_dataframe(("number", "params"), multi_index=True).columns) == [
        ("number", ""), ("params", "only_here"), ("params", "x"),
    ]  # fmt: skip
    assert tune.create_study().trials_dataframe().empty
    with pytest.raises(StudyError, match=r"attrs must be of number, .*, got 'lr'"):
        ours.trials_dataframe(("lr",))


def test_a_frame_of_several_metrics_has_a_column_for_each() -> None:
    study = tune.create_study(directions=["minimize", "maximize"], search="random")
    study.optimize(lambda t: (t.suggest_float("x", 0, 1), 2.0), 2)
    assert list(study.trials_dataframe(("number", "value")).columns) == ["number", "values_0", "values_1"]


def test_a_frame_without_pandas_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(StudyError, match="must have pandas"):
        tune.create_study().trials_dataframe()


def test_notes_about_trials_are_kept(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        trial.set_user_attr("half", np.float32(trial["x"] / 2))
        return float(trial["x"])

    with tune.Study({"x": "float:0:1"}, objective, folder=tmp_path / "noted") as study:
        study.optimize(trials=3)
        noted = [t.user_attrs for t in study.trials]
        with pytest.raises(StudyError, match="must be what JSON can hold, got model"):
            study.ask().set_user_attr("model", object())
    assert [t.user_attrs for t in tune.Study.load(tmp_path / "noted").trials][:3] == noted
    assert [a["half"] for a in noted] == [
        pytest.approx(t["x"] / 2) for t in (t.params for t in study.trials[:3])
    ]


def test_paused_functions_go_on_from_their_checkpoints(tmp_path: Path) -> None:
    trained: Counter[tuple[int, int]] = Counter()
    lock = threading.Lock()

    def train(trial: Any) -> None:
        saved = trial.checkpoint / "step"
        for step in range(int(saved.read_text()) + 1 if saved.exists() else 1, 10):
            with lock:
                trained[trial.number, step] += 1
            saved.write_text(str(step))
            trial.report(bowl(trial) + 1 / step, step)
            if trial.should_prune():
                raise tune.TrialPruned

    study = tune.Study(
        SPACE,
        train,
        minimize="loss",
        schedule="asha",
        resource={"max": 9},
        checkpoints=True,
        folder=tmp_path / "s",
    )
    study.optimize(trials=18, parallel=2)
    assert set(trained.values()) == {1}  # no step was trained twice
    assert sum(trained.values()) == sum(t.step for t in study.trials)
    assert {t.step for t in study.trials} == {1, 3, 9}
    assert any(t.starts > 1 for t in study.trials)


def test_a_trial_that_is_interrupted_again_and_again_goes_on() -> None:
    calls = []

    def objective(trial: Any) -> float:
        calls.append(trial.number)
        if len(calls) < 4:
            raise KeyboardInterrupt
        return 1.0

    with tune.Study({"x": tune.uniform(0, 1)}, objective, minimize="loss") as study:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                study.optimize(trials=1)
        study.optimize(trials=1)
        assert calls == [0, 0, 0, 0]
        assert [(trial.state, trial.lost) for trial in study.trials] == [("completed", 0)]


def test_several_metrics_have_a_front() -> None:
    study = tune.Study({"x": "float:0:2"}, minimize=["loss", "bytes"], search="nsga2")
    study.optimize(lambda trial: {"loss": trial["x"] ** 2, "bytes": (trial["x"] - 2) ** 2}, trials=20)
    front = study.front
    assert len(front) == 20  # each x between 0 and 2 is a trade-off
    worse = study.ask()
    study.tell(worse, [9.0, 9.0])
    assert worse.number not in {t.number for t in study.front}


def test_given_points_come_first_and_a_grid_ends() -> None:
    points = [{"x": 3.0, "k": "b"}, {"x": 1.0, "k": "b"}]
    study = tune.Study(SPACE, bowl, minimize="loss", points=points, search="random")
    study.optimize(trials=5)
    assert [t.params for t in study.trials[:2]] == points
    assert study.best.number == 1
    grid = tune.Study({"x": "int:1:3", "k": "a,b"}, bowl, minimize="loss", search="grid").optimize()
    assert len(grid.trials) == 6
    listed = tune.Study(SPACE, bowl, minimize="loss", points=points, search="list").optimize()
    assert len(listed.trials) == 2
    with pytest.raises(SpaceError, match="x must be in"):
        study.add({"x": 9.0, "k": "a"})


def test_a_study_goes_on_in_its_folder_and_refuses_other_settings(tmp_path: Path) -> None:
    with tune.Study(SPACE, bowl, minimize="loss", folder=tmp_path, seed=3) as study:
        study.optimize(trials=6)
        with pytest.raises(StudyError, match="one process at a time"):
            StudyJournal(tmp_path)  # as another process would
    with tune.Study(SPACE, bowl, minimize="loss", folder=tmp_path, seed=3) as study:
        study.optimize(trials=6)
        assert len(study.trials) == 12
    whole = tune.Study(SPACE, bowl, minimize="loss", seed=3).optimize(trials=12)
    with tune.Study.load(tmp_path) as again:
        assert [t.params for t in again.trials] == [t.params for t in whole.trials]
    with pytest.raises(StudyError, match="must keep the settings it began with, got another space"):
        tune.Study({"x": "float:-1:1", "k": ["a", "b"]}, minimize="loss", folder=tmp_path, seed=3)


def test_a_warm_start_uses_earlier_trials_and_does_not_count_them() -> None:
    earlier = tune.Study(SPACE, bowl, minimize="loss", search="random").optimize(trials=12)
    study = tune.Study(SPACE, bowl, minimize="loss", warm_start=earlier).optimize(trials=5)
    assert len(study.trials) == 17
    assert study.best_value <= earlier.best_value
    narrow = tune.Study({**SPACE, "x": tune.uniform(0, 5)}, bowl, minimize="loss", warm_start=earlier)
    assert 0 < len(narrow.trials) < 12


def test_a_view_counts_earlier_trials_in_both_of_its_numbers() -> None:
    def train(trial: Any) -> float:
        return float(trial["x"])

    first = tune.Study({"x": tune.uniform(0, 1)}, train, minimize="loss", search="random").optimize(trials=3)
    second = tune.Study(
        {"x": tune.uniform(0, 1)}, train, minimize="loss", search="random", warm_start=first
    ).optimize(trials=2)
    view = study_view(second.state)
    assert (view.trials, view.budget_trials) == (5, 5)


def test_errors_of_an_objective() -> None:
    def broken(trial: Any) -> float:
        raise ValueError("no data")

    study = tune.Study(SPACE, broken, minimize="loss")
    with pytest.raises(ValueError, match="no data"):
        study.optimize(trials=3)
    study.optimize(trials=9, catch=(ValueError,))
    assert {t.message.partition(" (")[0] for t in study.trials} == {"ValueError: no data"}
    with pytest.raises(StudyError, match="must have a budget"):
        tune.Study(SPACE, bowl, minimize="loss").optimize()
    with pytest.raises(StudyError, match="must return numbers"):
        tune.Study(SPACE, lambda trial: "good", minimize="loss").optimize(trials=1)
    nan = tune.Study(SPACE, lambda trial: float("nan"), minimize="loss").optimize(trials=2)
    assert {t.state for t in nan.trials} == {"stopped"}
    with pytest.raises(StudyError, match="to have a best"):
        _ = nan.best
    with pytest.raises(StudyError, match="must be running"):
        nan.tell(0, 1.0)


KILLED = """
import sys
import weft.tune as tune

def train(trial):
    print("begin", trial.number, flush=True)
    sys.stdin.readline()
    return trial["x"] ** 2

study = tune.Study({"x": "float:-5:5"}, train, minimize="loss", folder=sys.argv[1], seed=8)
own = sum(1 for t in study.trials if t.over)
study.optimize(trials=6 - own)
"""


def test_kill_9_loses_no_trial_and_counts_none_twice(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    folder = tmp_path / "study"
    command = [sys.executable, str(script), str(folder)]
    for fed in (1, 2, 6):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(fed):
                if not process.stdout.readline():
                    break
                process.stdin.write("\n")
                process.stdin.flush()
            if fed < 6:
                process.stdout.readline()  # in the middle of the next trial
                process.send_signal(signal.SIGKILL)
    with (folder / FILE).open("ab") as file:
        file.write(b'{"is":"ended","tri')  # a line that was cut short
    with tune.Study.load(folder) as study:
        assert [t.state for t in study.trials] == ["completed"] * 6
        kept = [t.params for t in study.trials]
    ends = Counter(e.trial for e in read_events(folder) if type(e).__name__ == "TrialEnded")  # type: ignore[union-attr]
    assert set(ends.values()) == {1}
    whole = tune.Study({"x": "float:-5:5"}, lambda t: t["x"] ** 2, minimize="loss", seed=8).optimize(trials=6)
    assert kept == [t.params for t in whole.trials]  # as without the faults


def test_search_cv_has_the_interface_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(120, 5))
    labels = (table @ rng.normal(size=5) > 0).astype(int)
    search = tune.SearchCV(
        LogisticRegression(), {"C": "log:1e-3:1e3"}, trials=6, batch=2, cv=2, random_state=1
    )
    search.fit(table, labels)
    assert len(search.cv_results_["params"]) == 6
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert search.best_estimator_.score(table, labels) > 0.8
    assert search.study_.best.params == search.best_params_


def test_journals_are_lines_of_json(tmp_path: Path) -> None:
    with tune.Study(SPACE, bowl, minimize="loss", folder=tmp_path) as study:
        study.optimize(trials=2)
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["is"] for line in lines if line["is"] not in ("begun", "moved")] == [
        "added",
        "started",
        "ended",
    ] * 2
    assert SearchState.of(read_events(tmp_path)).best() is not None
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


# -- what somebody wants of one trial --------------------------------------------------------------------------------


def halved(tmp_path: Path, **more: Any) -> tune.Study:
    """Return a study of nine trials by ASHA, all over or paused."""

    def train(trial: Any) -> None:
        kept = trial.checkpoint / "step"
        first = int(kept.read_text()) + 1 if kept.exists() else 1
        for step in range(first, 10):
            kept.write_text(str(step))
            trial.report(trial["x"] ** 2 + 1 / step, step)
            if trial.should_prune():
                raise tune.TrialPruned

    study = tune.Study(
        {"x": "float:-3:3"}, train, minimize="loss", search="random", schedule="asha", checkpoints=True,
        resource={"min": 1, "max": 9}, folder=tmp_path / "study", **more,
    )  # fmt: skip
    study.optimize(trials=9)
    return study


def test_a_trial_that_is_promoted_by_hand_goes_on_first(tmp_path: Path) -> None:
    with halved(tmp_path) as study:
        worst = max((t for t in study.trials if t.state == "paused"), key=lambda t: t.last_score)
        assert worst.step == 1
        study.promote(worst.number)
        assert study.state.state == "running"
        study.optimize(trials=0)
        assert study.state.trials[worst.number].steps == [1, 2, 3]
        study.promote(worst.number, until=9)
        study.optimize(trials=0)
        assert study.state.trials[worst.number].state == "completed"
        with pytest.raises(StudyError, match=f"trial {worst.number} must be paused or waiting .* completed"):
            study.promote(worst.number)
        other = next(t for t in study.trials if t.state == "paused")
        with pytest.raises(StudyError, match="at most 9 steps, got 10"):
            study.promote(other.number, until=10)
        with pytest.raises(StudyError, match="a trial must exist, got 99 where there are 0 to 8"):
            study.promote(99)


def test_a_trial_that_somebody_paused_rests_until_it_is_promoted(tmp_path: Path) -> None:
    with halved(tmp_path) as study:
        best = min((t for t in study.trials if t.state == "paused"), key=lambda t: t.last_score)
        study.pause_trial(best.number)
        study.optimize(trials=18)
        held = study.state.trials[best.number]
        assert held.held
        assert held.step == best.step
    with tune.Study.load(tmp_path / "study") as again:  # the journal keeps it
        assert again.state.trials[best.number].held
        again.promote(best.number)
        assert [t.number for t in again.state.interrupted()] == [best.number]
        again.stop_trial(best.number)
        assert again.state.trials[best.number].state == "stopped"
        with pytest.raises(StudyError, match="must not be over to be stopped, got one that is stopped"):
            again.stop_trial(best.number)


def test_the_model_of_the_best_trial_goes_to_the_store(tmp_path: Path) -> None:
    def train(trial: Any) -> float:
        write_onnx(trial.checkpoint / "model.onnx", trial["x"])
        return float(trial["x"] ** 2)

    with tune.Study(
        {"x": "float:-3:3"}, train, minimize="loss", search="random", folder=tmp_path / "a"
    ) as study:
        study.optimize(trials=4)
        entry = study.best.model.push("bowl", ["best"], store=tmp_path / "models")
        assert (entry.name, entry.version) == ("bowl", 1)
        assert entry.path.read_bytes() == study.best.model.path.read_bytes()
        with pytest.raises(
            StudyError, match=r"a model must be a file that trial .* saved, got '\.\./x'; it saved"
        ):
            study.best.model.push("bowl", path="../x", store=tmp_path / "models")
    without = tune.Study({"x": "float:-3:3"}, bowl_of_x, minimize="loss", search="random")
    without.optimize(trials=2)
    with pytest.raises(StudyError, match="must have saved one ONNX file to have a model, got nothing"):
        _ = without.best.model.path


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_a_study_ends_at_its_target(goal: str) -> None:
    sign = 1 if goal == "minimize" else -1

    def train(trial: Any) -> None:
        for step in range(1, 10):
            trial.report(sign * (abs(trial["x"]) + 1 / step), step)
            if trial.should_prune():
                raise tune.TrialPruned

    settings: dict[str, Any] = {goal: "loss", "budget": {"trials": 500, "target": sign * 0.5}}
    study = tune.Study({"x": "float:-1:1"}, train, search="random", **settings)
    study.optimize()
    assert study.state.message == f"loss has reached its target of {sign * 0.5:g}"
    last = study.trials[-1]
    assert (last.state, abs(last.curve[-1]) <= 0.5) == ("stopped", True)
    assert last.step < 9 or len(study.trials) < 500
    assert all(abs(value) > 0.5 for t in study.trials[:-1] for value in t.curve)


def bowl_of_x(trial: Any) -> float:
    return float(trial["x"] ** 2)


def write_onnx(path: Path, scale: float) -> None:
    """Write a model that multiplies."""
    node = onnx.helper.make_node("Mul", ["x", "s"], ["y"])
    kind = onnx.TensorProto.FLOAT
    values = [onnx.helper.make_tensor_value_info(name, kind, [1]) for name in ("x", "y")]
    constant = onnx.helper.make_tensor("s", kind, [1], [scale])
    graph = onnx.helper.make_graph([node], "scale", values[:1], values[1:], [constant])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), str(path))


def test_constraints_of_an_objective_keep_the_best_within_them(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 0, 1)
        trial.set_constraint("at least a half", 0.5 - x)
        assert trial.constraints == {"at least a half": 0.5 - x}
        return x

    with tune.create_study(seed=3, folder=tmp_path / "held") as study:
        study.optimize(objective, n_trials=40)
        best = study.best_trial
        assert best.params["x"] >= 0.5
        assert any(t.params["x"] < 0.5 for t in study.trials), "some trials broke it"
        late = [t.params["x"] for t in study.trials[20:]]
        assert sum(x >= 0.5 for x in late) > len(late) / 2, "the search is told of it"
    assert tune.Study.load(tmp_path / "held").best_params == best.params
    never = tune.create_study(search="random")
    never.optimize(lambda t: [t.set_constraint("c", 1), 0.0][1], n_trials=2)
    with pytest.raises(StudyError, match="within its constraints to have a best, got none"):
        _ = never.best
    with pytest.raises(
        StudyError, match=r"a constraint must be a number, at most 0 where it holds, got .*nan"
    ):
        never.ask().set_constraint("c", math.nan)


def test_the_front_is_within_the_constraints() -> None:
    study = tune.create_study(directions=["minimize", "minimize"], search="random")
    for number in range(6):
        trial = study.ask()
        trial.set_constraint("odd", number % 2)
        study.tell(trial, (float(number), float(9 - number)))
    assert [t.number for t in study.best_trials] == [0, 2, 4]


@pytest.mark.filterwarnings("ignore:suggest_:FutureWarning")
def test_a_study_and_its_trials_have_what_optunas_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def objective(trial: Any) -> float:
        a, b = trial.suggest_uniform("a", 0, 1), trial.suggest_loguniform("b", 1e-3, 1)
        c = trial.suggest_discrete_uniform("c", 0, 1, 0.5)
        assert (0 <= a <= 1, 1e-3 <= b <= 1, c in (0, 0.5, 1)) == (True, True, True)
        trial.report(a, np.int64(0))
        trial.report(a / 2, 1)
        if trial.number == 1:
            raise ArithmeticError
        return float(a)

    theirs = optuna.create_study(study_name="both")
    ours = tune.create_study(study_name="both", search="random", folder=tmp_path / "ours")
    for one in (theirs, ours):
        one.optimize(
            objective, n_trials=3, catch=ArithmeticError, gc_after_trial=True, show_progress_bar=True
        )
        one.set_user_attr("data", {"rows": 7})
        assert (one.study_name if one is ours else "both", one.user_attrs) == ("both", {"data": {"rows": 7}})
    assert "3 of 3 trials: trial 2 completed, best " in capsys.readouterr().err
    assert ours.direction == theirs.direction.name.lower() == "minimize"
    assert ours.directions == [one.name.lower() for one in theirs.directions]
    for found, expected in zip(ours.get_trials(), theirs.get_trials(), strict=True):
        assert list(found.intermediate_values) == list(expected.intermediate_values) == [0, 1]
        assert found.last_step == expected.last_step == 1
        assert (found.datetime_start is None) == (expected.datetime_start is None)
        assert found.datetime_start is not None
        assert found.datetime_complete is not None
        assert found.duration == found.datetime_complete - found.datetime_start
    assert [t.number for t in ours.get_trials(states=["failed"])] == [1]
    ours.close()
    assert tune.Study.load(tmp_path / "ours").user_attrs == {"data": {"rows": 7}}
    several = tune.create_study(directions=["minimize", "maximize"])
    with pytest.raises(StudyError, match="must have one metric to have one direction"):
        _ = several.direction


@pytest.mark.parametrize(
    ("wrong", "must"),
    [
        (lambda t: t.report("a", 1), "a report must be numbers at a whole step, got 'a' at 1"),
        (lambda t: t.report(1.0, 0.5), "a report must be numbers at a whole step, got 1.0 at 0.5"),
        (lambda t: t.suggest_float("x", 0.1, 1, log=True, step=0.1), "x must have a step or be logarithmic"),
        (lambda t: t.suggest_int("x", 1, 9, log=True, step=2), "x must have a step or be logarithmic"),
    ],
)
def test_an_objective_that_says_nonsense_is_told(wrong: Any, must: str) -> None:
    with pytest.raises(UsageError, match=must):
        tune.create_study(search="random").optimize(wrong, n_trials=1)


@pytest.mark.parametrize("trials", [-1, 2.5, "3"])
def test_a_number_of_trials_that_is_none_is_told(trials: Any) -> None:
    with pytest.raises(StudyError, match="trials must be a whole number from 0 on, got"):
        tune.create_study(search="random").optimize(lambda t: 1.0, n_trials=trials)


def test_no_further_trials_are_none_as_they_are_optunas() -> None:
    study = tune.create_study(search="random")
    study.optimize(lambda t: 1.0, n_trials=0)
    assert study.trials == []
    study.optimize(lambda t: 1.0, n_trials=np.int64(2))  # type: ignore[arg-type]
    study.optimize(lambda t: 1.0, n_trials=0)
    assert len(study.trials) == 2
