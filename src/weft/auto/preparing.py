"""Preparing looks at a table before the search: its task, the roles of columns, its splits, what is wrong with it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.auto.columns import ColumnRole, Task, find_roles, find_task
from weft.auto.config import AutoConfig
from weft.auto.families.fitting import FitRequest, Judges, fit_model
from weft.auto.families.spaces import ModelFamily
from weft.auto.features.view import fit_view
from weft.auto.findings import TableFinding, column_findings, drift_findings, leak_findings, target_findings
from weft.auto.frames import RawTable
from weft.auto.validation import Splits, as_targets, some_places, split_rows
from weft.errors import DataError

Array = np.ndarray[Any, Any]

COMPILING_ROWS = 60  # of a table that kernels are compiled with


@dataclass(frozen=True)
class PreparedTable:
    """A table that has been looked at: its task, roles, rows and splits, and what was found."""

    task: Task
    roles: list[ColumnRole]
    table: RawTable  # of rows whose target is known
    target: Array
    splits: Splits
    findings: list[TableFinding]
    compiling_s: float = 0.0  # that kernels took to be compiled or read, once on a machine


def prepare(table: RawTable, config: AutoConfig, families: Sequence[ModelFamily] = ()) -> PreparedTable:
    """Look at a table: its task, the roles of its columns, its splits; DataError says what is wrong with it."""
    if not len(table):
        raise DataError("the table must have rows, got none; check the file")
    roles = find_roles(table, config)
    task, rows, target = find_task(table, config)
    of_target = target_findings(table[config.target], task, len(rows))
    table = table.take(rows)
    splits = split_rows(
        target,
        task,
        time=None if config.time is None else _times(table, config.time),
        group=None if config.group is None else table.values(config.group).astype(str),
        seed=config.seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiling_s = compile_kernels(table, target, roles, task, families)
        found = [
            *of_target,
            *column_findings(roles),
            *leak_findings(table.take(splits.search), roles, target[splits.search], task, config.seed),
            *_drift(table, roles, splits, config),
        ]
    return PreparedTable(task, roles, table, target, splits, found, compiling_s)


def compile_kernels(
    table: RawTable, target: Array, roles: list[ColumnRole], task: Task, families: Sequence[ModelFamily]
) -> float:
    """Fit each of our families to a few rows, which compiles the kernels that the run needs; return its seconds."""
    began = time.monotonic()
    rows = some_places(target, task, COMPILING_ROWS, 0)
    rows = np.concatenate(
        [rows[target[rows] == code][:20] for code in np.unique(target[rows])][:COMPILING_ROWS]
    )
    few, goals = table.take(rows), target[rows]
    for family in families:
        if family.package:
            continue
        view, features = fit_view(family.view, few, roles, as_targets(goals, task), pairs=False, seed=0)
        params = {**family.first, **({"trees": 2} if family.name == "forest" else {})}
        try:
            judges = Judges(features, goals)
            asked = FitRequest(params, features, goals, task, view.categorical, judges, rounds=2)
            fit_model(family.name, asked)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            continue  # too few rows for it; its trial tells
    return time.monotonic() - began


def _times(table: RawTable, name: str) -> Array:
    if table[name].kind == "text":
        raise DataError(
            f"--time must be a column of dates or numbers, got text in {name!r}; write dates as 2024-12-31"
        )
    times: Array = table.values(name)
    known = times[~np.isnan(times)]
    if len(known) and (known == known[0]).all():
        raise DataError(
            f"--time must tell later rows from earlier ones, got one value in {name!r}; leave it out"
        )
    return times


def _drift(
    table: RawTable, roles: list[ColumnRole], splits: Splits, config: AutoConfig
) -> list[TableFinding]:
    others = [role for role in roles if role.name != config.time]
    if config.time is not None:
        return drift_findings(
            table.take(splits.search), table.take(splits.held), others, "the latest rows", config.seed
        )
    cut = int(0.8 * len(table))
    parts = table.take(np.arange(cut)), table.take(np.arange(cut, len(table)))
    return drift_findings(
        *parts, others, "the last fifth of the rows, in the order of the file,", config.seed
    )
