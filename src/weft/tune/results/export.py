"""Exports of a study: CSV, Parquet, JSON, Optuna's storages, and the best parameters as a config file; and imports."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from weft.files import write_whole
from weft.tune.results.views import study_view, trial_view
from weft.tune.runners.command import dump, merged_config
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState

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
