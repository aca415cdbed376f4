"""Scripts that were written for Optuna, with one import changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weft.compat.optuna as optuna
from weft.tune.study.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def objective(trial: Any) -> float:
    x: float = trial.suggest_float("x", -10, 10)
    for step in range(4):
        trial.report((x - 2) ** 2 + 1 / (step + 1), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return (x - 2) ** 2


def test_a_script_runs_with_one_import_changed(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/example.db"
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for _ in range(2):
        study = optuna.create_study(
            study_name="quadratic",
            storage=storage,
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=0),
            pruner=optuna.pruners.MedianPruner(),
        )
        most = optuna.study.MaxTrialsCallback(20, states=(optuna.trial.TrialState.COMPLETE,))
        study.optimize(objective, n_trials=10, callbacks=[most])
        study.close()
    assert isinstance(study, optuna.Study)
    assert optuna.Study is Study
    loaded = optuna.study.load_study(study_name="quadratic", storage=storage)
    assert len(loaded.trials) == 20
    assert optuna.importance.get_param_importances(loaded).keys() == {"x"}
    optuna.copy_study(
        from_study_name="quadratic", from_storage=storage, to_storage=storage, to_study_name="b"
    )
    assert optuna.get_all_study_names(storage) == ["b", "quadratic"]
    assert [one.n_trials for one in optuna.get_all_study_summaries(storage)] == [20, 20]
    optuna.delete_study(study_name="b", storage=storage)
    assert (tmp_path / "example.db.studies").is_dir()


def test_plots_take_studies() -> None:
    pytest.importorskip("matplotlib")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=5)
    plots = optuna.visualization.matplotlib
    assert plots.plot_optimization_history(study).get_title() == "Optimization History Plot"
    plots.plot_slice([study][0], params=["x"])


def test_files_of_trials_go_to_optunas_stores(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "model.txt").write_text("weights")
    store = optuna.artifacts.FileSystemArtifactStore(tmp_path / "store")

    def keeping(trial: Any) -> float:
        number = optuna.artifacts.upload_artifact(
            artifact_store=store, file_path=str(tmp_path / "model.txt"), study_or_trial=trial
        )
        trial.set_user_attr("artifact", number)
        return 0.0

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    study.optimize(keeping, n_trials=1)
    number = study.best_trial.user_attrs["artifact"]
    with store.open_reader(number) as file:
        assert file.read() == b"weights"
    assert any(number in name for name in study.best_trial.system_attrs)
