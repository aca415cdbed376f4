"""Exports of a study: CSV, Parquet, JSON, Optuna's storages, and the best parameters as a config file; and imports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.files import write_whole
from weft.tune.results.views import study_view, trial_view
from weft.tune.runners.command import dump, merged_config
from weft.tune.space.space import OPEN, SearchSpace
from weft.tune.study.config import StudyError, convert_config
from weft.tune.study.core import StudyCore
from weft.tune.study.state import SearchState
from weft.tune.study.warm_start import add_optunas, domain_of

FORMATS = ("csv", "json", "parquet")


def rows_of(state: SearchState) -> list[dict[str, Any]]:
    """Return one flat row for each trial; `params.lr` and `values.loss` are columns."""
    names = list(state.space.domains)
    rows = []
    for trial in state:
        view = trial_view(state, trial)
        row: dict[str, Any] = {"number": view.number, "state": view.state, "step": view.step}
        row |= {f"values.{name}": view.values[name] for name in state.goals}
        row |= {f"params.{name}": view.params.get(name) for name in names}
        row |= {"run_s": view.run_s, "begun_ms": view.begun_ms, "ended_ms": view.ended_ms}
        row |= {"starts": view.starts, "parent": view.parent, "source": view.source, "message": view.message}
        rows.append(row)
    return rows


def to_csv(state: SearchState) -> str:
    """Return all trials as CSV."""
    rows = rows_of(state)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["number"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_json(state: SearchState) -> str:
    """Return a study with all its trials and their curves as JSON."""
    import msgspec

    trials = [trial_view(state, trial, curve=True) for trial in state]
    found = {"study": study_view(state), "config": state.config, "trials": trials}
    return json.dumps(msgspec.to_builtins(found), indent=2) + "\n"


def export(state: SearchState, path: Path) -> None:
    """Write all trials to a file; its ending says how."""
    match path.suffix.lower():
        case ".csv":
            write_whole(path, to_csv(state))
        case ".json":
            write_whole(path, to_json(state))
        case ".parquet":
            _write_parquet(state, path)
        case _:
            raise StudyError(
                f"an export must end in {', '.join('.' + one for one in FORMATS)}, got {path.name}; rename it"
            )


def _write_parquet(state: SearchState, path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise StudyError("Parquet must be written by pyarrow, got none; install weft[data]") from None
    rows = rows_of(state)
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in (rows[0] if rows else [])}
    plain = {
        name: values if _alike(values) else [_text(v) for v in values] for name, values in columns.items()
    }
    pyarrow.parquet.write_table(pyarrow.table(plain), path)


def _alike(values: list[Any]) -> bool:
    """Return whether a column can have one type."""
    kinds = {type(value) for value in values if value is not None}
    return len(kinds) <= 1 or kinds == {int, float}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def best_config(state: SearchState, ending: str = ".yaml") -> str:
    """Return the best parameters as a config file, in the study's own file where it has one."""
    from weft.documents import parse_document

    best = state.best()
    if best is None:
        raise StudyError(f"a study must have a trial with {state.goals[0]}, got none; wait for one")
    base: Any = {}
    if state.config.config is not None:
        base = parse_document(Path(state.config.config), error=StudyError)
        return dump(merged_config(base, best.params), ending)
    return dump(dict(best.params), ending)


# -- Optuna ------------------------------------------------------------------------------------------------------


def to_optuna(state: SearchState, url: str, name: str | None = None) -> None:
    """Add a study to a storage of Optuna's: `sqlite:///studies.db`."""
    try:
        import optuna
        from optuna.trial import TrialState

        from weft.tune.samplers.history import distribution_of
        from weft.tune.samplers.history import to_optuna as converted
    except ModuleNotFoundError as error:
        raise StudyError(
            f"Optuna's storages must have {error.name}, got no such package; install weft[tune]"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind = optuna.study.StudyDirection
    directions = [kind.MINIMIZE if small else kind.MAXIMIZE for small in state.config.goals.values()]
    try:
        study = optuna.create_study(storage=url, study_name=name or state.config.name, directions=directions)
    except optuna.exceptions.DuplicatedStudyError:
        raise StudyError(
            f"the storage must not have a study {name or state.config.name} yet, got one; name another"
        ) from None
    kinds = {"completed": TrialState.COMPLETE, "failed": TrialState.FAIL}
    for trial in state:
        done = trial.state == "completed"
        domains = {n: state.space.domains[n] for n in trial.params}
        study.add_trial(
            optuna.trial.create_trial(
                state=kinds.get(trial.state, TrialState.PRUNED),
                values=list(trial.values) if done and trial.values is not None else None,
                params={n: converted(domains[n], v) for n, v in trial.params.items()},
                distributions={n: distribution_of(domain) for n, domain in domains.items()},
                intermediate_values=dict(zip(trial.steps, trial.curve, strict=True)),
                user_attrs={**trial.user_attrs, "weft_state": trial.state, "weft_message": trial.message},
            )
        )


def from_optuna(url: str, name: str | None = None) -> StudyCore:
    """Return a study made of one in a storage of Optuna's; its ended trials are taken over."""
    try:
        import optuna
        from optuna.trial import TrialState
    except ModuleNotFoundError as error:
        raise StudyError(
            f"Optuna's storages must have {error.name}, got no such package; install weft[tune]"
        ) from None
    try:
        study = optuna.load_study(study_name=name, storage=url)
    except (KeyError, ValueError) as error:
        raise StudyError(f"the storage must have a study {name or ''}, got {error}; name one") from None
    many = len(study.directions) > 1
    names = [f"value{i}" if many else "value" for i in range(len(study.directions))]
    goals: dict[str, list[str]] = {"minimize": [], "maximize": []}
    for goal, direction in zip(names, study.directions, strict=True):
        goals[direction.name.lower()].append(goal)
    kept = [
        t for t in study.get_trials(deepcopy=False) if t.state in (TrialState.COMPLETE, TrialState.PRUNED)
    ]
    space = _space_of(kept)
    settings = {"space": OPEN if space is None else space.data(), "name": study.study_name, **goals}
    core = StudyCore.begin(convert_config({**settings, "metrics": names if many else []}))
    for one in kept:
        add_optunas(core, one, study.study_name)
    return core


def _space_of(trials: Sequence[Any]) -> SearchSpace | None:
    """Return the space of Optuna's trials; None: they differ, as where some parameters are asked for at times."""
    domains = {name: domain_of(found) for one in trials for name, found in one.distributions.items()}
    if not domains:
        return None
    space = SearchSpace(domains)
    same = all(
        one.params.keys() == domains.keys()
        and all(domains[name].contains(value) for name, value in one.params.items())
        for one in trials
    )
    return space if same else None
