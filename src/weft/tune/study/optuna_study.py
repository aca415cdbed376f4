"""Studies made by Optuna's functions: `create_study` and `load_study`, for programs that come from there."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft.tune.study.config import StudyBusy, StudyError
from weft.tune.study.events import StudyBegun
from weft.tune.study.home import find_study, list_studies
from weft.tune.study.journal import FILE, StudyJournal, is_held, read_events
from weft.tune.study.state import SearchState, TrialRecord
from weft.tune.study.states import MetricDirection, direction_named
from weft.tune.study.study import Study

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

_OURS = {"sampler": "search", "pruner": "schedule"}  # other words for the same
NO_PRUNER = "nop"


def create_study(
    *,
    storage: str | Path | None = None,
    sampler: str | dict[str, Any] | BaseSampler | None = None,
    pruner: str | dict[str, Any] | BasePruner | None = None,
    study_name: str | None = None,
    direction: Any = None,
    load_if_exists: bool = False,
    directions: Sequence[Any] | None = None,
    **settings: Any,
) -> Study:
    """Return a study for an objective of Optuna's: `create_study(direction="maximize").optimize(objective, 50)`.

    With several directions the objective returns a value for each, in their order. `sampler` and `pruner` are objects
    of Optuna's, or names of searches and schedules. `storage` is a folder of studies, where one of the same name goes
    on with `load_if_exists`. All other settings are those of `Study`.
    """
    if direction is not None and directions is not None:
        raise StudyError("a study must have direction or directions, got both; remove one")
    wanted = [direction_named(one) for one in directions or ["minimize" if direction is None else direction]]
    for theirs, given in (("sampler", sampler), ("pruner", None if pruner == NO_PRUNER else pruner)):
        if given is not None:
            settings = _once(settings, _OURS[theirs], theirs, given)
    if storage is not None:
        if study_name is None and "name" not in settings:
            study_name = f"no-name-{uuid.uuid4()}"
        folder = _folder(storage, study_name or settings.get("name"))
        if (folder / FILE).exists() and not load_if_exists:
            raise _duplicate(
                f"a new study must have a name of its own, got {folder.name}, which {folder.parent} has; "
                "write load_if_exists=True to go on with it"
            )
        settings = _once(settings, "folder", "storage", folder)
    if study_name is not None:
        settings = _once(settings, "name", "study_name", study_name)
    if len(wanted) == 1:
        return Study(**{wanted[0]: "value", **settings})
    names = [f"value{i}" for i in range(len(wanted))]
    by_direction: dict[str, Any] = {
        kind: [name for name, one in zip(names, wanted, strict=True) if one == kind]
        for kind in ("minimize", "maximize")
    }
    return Study(**by_direction, metrics=names, **settings)


def load_study(
    *,
    study_name: str | None = None,
    storage: str | Path,
    sampler: str | dict[str, Any] | BaseSampler | None = None,
    pruner: str | dict[str, Any] | BasePruner | None = None,
) -> Study:
    """Return a study of a folder of studies, to go on with it; samplers and pruners that were objects come again.

    The name may be left out where there is one study.
    """
    if study_name is None:
        known = get_all_study_names(storage)
        if len(known) != 1:
            raise StudyError(
                f"a study to load must be named where there are several, got {', '.join(known) or 'none'}; "
                "write study_name"
            )
        study_name = known[0]
    return Study.load(_folder(storage, study_name), search=sampler or "", schedule=pruner or "")


def get_all_study_names(storage: str | Path) -> list[str]:
    """Return the names of the studies in a folder of studies."""
    return sorted(list_studies(_folder(storage, "")))


@dataclass(frozen=True)
class StudySummary:
    """A study of a folder as Optuna sums it up."""

    study_name: str
    directions: list[MetricDirection]
    best_trial: TrialRecord | None
    user_attrs: dict[str, Any]
    n_trials: int
    datetime_start: datetime | None

    @property
    def direction(self) -> MetricDirection:
        """The direction of the first metric."""
        return self.directions[0]


def get_all_study_summaries(storage: str | Path, include_best_trial: bool = True) -> list[StudySummary]:
    """Return what the studies in a folder of studies have come to, by name, whoever runs them."""
    found = []
    for name in get_all_study_names(storage):
        state = SearchState.of(read_events(_folder(storage, name)))
        kinds = MetricDirection
        directions = [kinds.MINIMIZE if small else kinds.MAXIMIZE for small in state.config.goals.values()]
        began = None if state.begun_s is None else datetime.fromtimestamp(state.begun_s)
        best = state.best() if include_best_trial and len(directions) == 1 else None
        notes = dict(state.user_attrs)
        found.append(
            StudySummary(name, directions, best, notes, len(state.trials), began if state.trials else None)
        )
    return found


def copy_study(
    *,
    from_study_name: str,
    from_storage: str | Path,
    to_storage: str | Path,
    to_study_name: str | None = None,
) -> None:
    """Copy a study of a folder of studies into another, or beside itself by another name; its files stay behind."""
    source = find_study(from_study_name, _folder(from_storage, ""))
    target = _folder(to_storage, to_study_name or from_study_name)
    if (target / FILE).exists():
        raise _duplicate(
            f"a copy must have a name of its own, got {target.name}, which {target.parent} has; name another"
        )
    events = [
        msgspec.structs.replace(one, config={**one.config, "name": target.name})
        if isinstance(one, StudyBegun)
        else one
        for one in read_events(source)
    ]
    journal = StudyJournal(target)
    journal.write(events)
    journal.close()


def _duplicate(text: str) -> StudyError:
    """Return the error about a study that is there already; Optuna's own kind, too, for those who wait for that."""
    theirs = getattr(sys.modules.get("optuna.exceptions"), "DuplicatedStudyError", None)
    if theirs is None:
        return StudyError(text)
    kind: type[StudyError] = type("StudyExists", (StudyError, theirs), {})
    return kind(text)


def delete_study(*, study_name: str, storage: str | Path) -> None:
    """Remove a study of a folder of studies with its logs and checkpoints; StudyError if it runs, or is not there."""
    folder = find_study(study_name, _folder(storage, ""))
    if is_held(folder):
        raise StudyBusy(
            f"study {study_name} must not be in use to be removed, got one that is; call its close()"
        )
    shutil.rmtree(folder)


def _once(settings: dict[str, Any], ours: str, theirs: str, given: Any) -> dict[str, Any]:
    if ours in settings:
        raise StudyError(
            f"{ours} must be given once, got it by its name in Optuna, {theirs}, too; remove one"
        )
    return {**settings, ours: given}


def _folder(storage: Any, name: str | None) -> Path:
    """Return the folder of a study in a folder of studies; StudyError if the storage is one of Optuna's own."""
    if not isinstance(storage, (str, Path)) or "://" in str(storage):
        raise StudyError(
            f"storage must be a folder, got {storage!r}; write storage='studies', and study.to_optuna(url) or "
            "Study.from_optuna(url) for a storage of Optuna's"
        )
    if name is None:
        raise StudyError("a study in a storage must have a name, got none; write study_name='digits'")
    return Path(storage) / name
