"""Searches for good parameters: bad trials are paused early, good ones go on from their checkpoints.

    import weft.tune as tune

    study = tune.Study({"lr": tune.log(1e-5, 1e-1), "optimizer": ["adam", "sgd"]}, minimize="loss")
    study.optimize(train, trials=50)         # train(trial) returns the loss, or reports it
    print(study.best.params)

A trial is run by whatever carries out a small interface: functions and processes of this machine here, jobs of the
service in `weft.jobs`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PLACES = {
    "SearchCV": "weft.tune.search_cv",
    "SearchSpace": "weft.tune.space.space",
    "Study": "weft.tune.study.study",
    "StudyConfig": "weft.tune.study.config",
    "TrialPruned": "weft.tune.trial",
    "TrialState": "weft.tune.study.states",
    "choice": "weft.tune.space.domains",
    "create_study": "weft.tune.study.optuna_study",
    "copy_study": "weft.tune.study.optuna_study",
    "delete_study": "weft.tune.study.optuna_study",
    "get_all_study_summaries": "weft.tune.study.optuna_study",
    "get_all_study_names": "weft.tune.study.optuna_study",
    "load_study": "weft.tune.study.optuna_study",
    "integer": "weft.tune.space.domains",
    "log": "weft.tune.space.domains",
    "ordered": "weft.tune.space.domains",
    "params": "weft.tune.trial",
    "uniform": "weft.tune.space.domains",
}
__all__ = [
    "SearchCV",
    "SearchSpace",
    "Study",
    "StudyConfig",
    "TrialPruned",
    "TrialState",
    "choice",
    "copy_study",
    "create_study",
    "delete_study",
    "get_all_study_names",
    "get_all_study_summaries",
    "integer",
    "load_study",
    "log",
    "ordered",
    "params",
    "uniform",
]

if TYPE_CHECKING:
    from weft.tune.search_cv import SearchCV
    from weft.tune.space.domains import choice, integer, log, ordered, uniform
    from weft.tune.space.space import SearchSpace
    from weft.tune.study.config import StudyConfig
    from weft.tune.study.optuna_study import (
        copy_study,
        create_study,
        delete_study,
        get_all_study_names,
        get_all_study_summaries,
        load_study,
    )
    from weft.tune.study.states import TrialState
    from weft.tune.study.study import Study
    from weft.tune.trial import TrialPruned, params


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'weft.tune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
