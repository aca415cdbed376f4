"""Imports: trials in a file, one a row, as exports write them or as people keep them in a table of their own.

`params.lr` and `values.loss` are columns of an export; a column `lr` or `loss` means the same. JSON is an export whole.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.tune.space.text import parse_value
from weft.tune.study.config import StudyError


@dataclass(frozen=True)
class TableTrial:
    """A trial that ended somewhere else."""

    params: dict[str, Any]
    values: tuple[float, ...]


def is_table(name: str) -> bool:
    """Return whether a name is one of a file with trials."""
    return Path(name).suffix.lower() in _READERS


def read_table(path: Path, names: Sequence[str], goals: Sequence[str]) -> list[TableTrial]:
    """Return the completed trials in a file, as far as it has columns for parameters and metrics."""
    try:
        rows = list(_READERS[path.suffix.lower()](path))
    except OSError as error:
        raise StudyError(f"a table of trials must be in {path}, got {error.strerror}; export one") from None
    except ValueError as error:
        raise StudyError(f"{path} must be a table of trials, got {error}; export one") from None
    missing = [
        goal for goal in goals if rows and not any(_cell(row, "values", goal) is not None for row in rows)
    ]
    if missing:
        raise StudyError(
            f"{path} must have the metric {missing[0]}, got {', '.join(map(str, rows[0]))}; name the column "
            f"values.{missing[0]} or {missing[0]}"
        )
    return [found for row in rows if (found := _trial(row, names, goals)) is not None]


def _trial(row: Mapping[str, Any], names: Sequence[str], goals: Sequence[str]) -> TableTrial | None:
    if row.get("state", "completed") not in ("completed", "COMPLETE"):
        return None
    try:
        values = tuple(float(_cell(row, "values", goal)) for goal in goals)
    except (TypeError, ValueError):
        return None
    if not all(map(math.isfinite, values)):
        return None
    params = {name: value for name in names if (value := _cell(row, "params", name)) is not None}
    return TableTrial(params, values)


def _cell(row: Mapping[str, Any], kind: str, name: str) -> Any:
    """Return what a row has under one of the two names of a column; None: nothing."""
    found = row.get(f"{kind}.{name}", row.get(name))
    return None if found == "" else found


def _csv_rows(path: Path) -> Iterable[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield {name: parse_value(text) for name, text in row.items() if name and isinstance(text, str)}


def _json_rows(path: Path) -> Iterable[dict[str, Any]]:
    found = json.loads(path.read_text("utf-8"))
    listed = found.get("trials") if isinstance(found, dict) else found
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError("no list of trials")
    for one in listed:
        nested = {f"{kind}.{name}": value for kind in ("params", "values") if isinstance(one.get(kind), dict)
                  for name, value in one[kind].items()}  # fmt: skip
        yield {**one, **nested}


def _parquet_rows(path: Path) -> Iterable[dict[str, Any]]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise StudyError("Parquet must be read by pyarrow, got none; install weft[data]") from None
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return found


_READERS: dict[str, Callable[[Path], Iterable[dict[str, Any]]]] = {
    ".csv": _csv_rows,
    ".json": _json_rows,
    ".parquet": _parquet_rows,
}
