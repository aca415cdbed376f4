"""Optuna's module with the studies of `weft.tune`, for scripts that were written for Optuna.

    import weft.compat.optuna as optuna     # was: import optuna

Samplers, pruners, distributions, callbacks, terminators and plots are Optuna's own. Studies are ours, and kept in
folders: the storage `sqlite:///example.db` is the folder example.db.studies. One process at a time has a study.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.tune.study import optuna_study as ours
from weft.tune.study.config import StudyError
from weft.tune.study.study import Study as Study  # one of its names
from weft.tune.trial import FunctionTrial

try:
    _theirs = importlib.import_module("optuna")
except ModuleNotFoundError:
    raise StudyError("weft.compat.optuna must have Optuna, got no such package; install weft[tune]") from None

SQLITE = "sqlite:///"


def _folder(storage: Any) -> Any:
    """Return the folder that stands for a file of SQLite; any other storage as it is."""
    if isinstance(storage, str) and storage.startswith(SQLITE):
        return Path(storage.removeprefix(SQLITE) + ".studies")
    return storage


def create_study(*, storage: Any = None, **settings: Any) -> Study:
    """Return a study of ours: `weft.tune.create_study`."""
    return ours.create_study(storage=_folder(storage), **settings)


def load_study(*, storage: Any, **settings: Any) -> Study:
    """Return a study of a storage, to go on with it: `weft.tune.load_study`."""
    return ours.load_study(storage=_folder(storage), **settings)


def delete_study(*, study_name: str, storage: Any) -> None:
    """Remove a study of a storage."""
    ours.delete_study(study_name=study_name, storage=_folder(storage))


def copy_study(
    *, from_study_name: str, from_storage: Any, to_storage: Any, to_study_name: str | None = None
) -> None:
    """Copy a study of a storage."""
    ours.copy_study(
        from_study_name=from_study_name,
        from_storage=_folder(from_storage),
        to_storage=_folder(to_storage),
        to_study_name=to_study_name,
    )


def get_all_study_names(storage: Any) -> list[str]:
    """Return the names of the studies in a storage."""
    return ours.get_all_study_names(_folder(storage))


def get_all_study_summaries(storage: Any, include_best_trial: bool = True) -> list[ours.StudySummary]:
    """Return what the studies in a storage have come to."""
    return ours.get_all_study_summaries(_folder(storage), include_best_trial)


def upload_artifact(*, artifact_store: Any, file_path: str, study_or_trial: Any, **more: Any) -> str:
    """Keep a file of a trial in a store of Optuna's; return its number there."""
    upload: Any = _theirs.artifacts.upload_artifact
    if isinstance(study_or_trial, FunctionTrial):
        more["storage"] = study_or_trial.storage
        seen = _theirs.trial.create_trial(value=0.0)
        seen._trial_id = study_or_trial.number
        study_or_trial = seen
    found: str = upload(
        artifact_store=artifact_store, file_path=file_path, study_or_trial=study_or_trial, **more
    )
    return found


class _OptunasModule:
    """A module of Optuna's with some names of ours in place of its own."""

    def __init__(self, module: ModuleType, names: Mapping[str, Any]) -> None:
        self._module, self._names = module, names

    def __getattr__(self, name: str) -> Any:
        return self._names[name] if name in self._names else getattr(self._module, name)


class _OptunasPlots:
    """Optuna's plots, which get a study of ours as one of Optuna's."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return _OptunasPlots(found)
        if not name.startswith("plot_"):
            return found

        def plot(*given: Any, **named: Any) -> Any:
            return found(*map(_as_theirs, given), **{key: _as_theirs(one) for key, one in named.items()})

        return plot


def _as_theirs(given: Any) -> Any:
    if isinstance(given, (list, tuple)) and any(isinstance(one, Study) for one in given):
        return [_as_theirs(one) for one in given]
    return given.to_optuna() if isinstance(given, Study) else given


_STUDY = {
    "Study": Study,
    "copy_study": copy_study,
    "create_study": create_study,
    "delete_study": delete_study,
    "get_all_study_names": get_all_study_names,
    "get_all_study_summaries": get_all_study_summaries,
    "load_study": load_study,
}


def __getattr__(name: str) -> Any:
    match name:
        case "study":
            return _OptunasModule(_theirs.study, _STUDY)
        case "artifacts":
            module = importlib.import_module("optuna.artifacts")
            return _OptunasModule(module, {"upload_artifact": upload_artifact})
        case "visualization":
            return _OptunasPlots(importlib.import_module("optuna.visualization"))
    return getattr(_theirs, name)


__all__ = [*_STUDY, "upload_artifact"]
