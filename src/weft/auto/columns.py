"""The roles of columns: number, category, date, text, identifier, constant; and what the target asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.auto.config import METRICS, AutoConfig
from weft.auto.frames import RawColumn, RawTable
from weft.auto.reading.texts import find_numbers
from weft.errors import DataError, UsageError
from weft.text import suggestion

Array = np.ndarray[Any, Any]

FEW_CLASSES = 20  # a target of whole numbers with at most so many distinct values is a class
LEAST_ROWS = 20  # fewer cannot be split into parts that tell anything
LEAST_OF_CLASS = 5  # rows of a class: each part of the validation must have some; rarer ones are left out
LEAST_IDENTIFIED = 50  # known values: fewer may be different by chance
UNIQUE_SHARE = 0.98  # text or whole numbers with a larger share of distinct values are identifiers
TEXT_WORDS = 4  # text with so many words on average is prose, not a category
CATEGORY_SHARE = 0.5  # text with a larger share of distinct values is prose or an identifier
LEAST_KNOWN = 3  # a column with fewer known values tells nothing

USED = ("number", "category", "date", "text")


@dataclass(frozen=True)
class ColumnRole:
    """The role of a column, with what it was found from."""

    name: str
    role: str
    kind: str  # of the raw column: number, date or text
    distinct: int
    missing_share: float
    why: str
    format: str = ""  # of text that holds dates or numbers

    @property
    def used(self) -> bool:
        return self.role in USED


@dataclass(frozen=True)
class Task:
    """The kind of prediction: its classes (None for numbers) and the loss to make small."""

    target: str
    metric: str
    classes: tuple[Any, ...] | None

    @property
    def outputs(self) -> int:
        """Columns of a prediction: probabilities of all classes, or one number."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def smooth_metric(self) -> str:
        """The loss that tells when to stop: the metric itself, or log-loss in the place of one that jumps."""
        return self.metric if self.classes is None else "log_loss"


def find_roles(table: RawTable, config: AutoConfig) -> list[ColumnRole]:
    """Return the role of every column but the target."""
    for option, names in {
        "--target": (config.target,),
        "--time": (config.time,) if config.time else (),
        "--group": (config.group,) if config.group else (),
        "--drop": config.drop,
        "--fairness": config.fairness,
    }.items():
        for name in names:
            if name not in table.columns:
                known = list(table.columns)
                raise UsageError(
                    f"{option} must be a column of the table, got {name!r}; {suggestion(name, known)}"
                )
    roles = [_role_of(column, config) for name, column in table.columns.items() if name != config.target]
    roles = _without_copies(table, roles, {config.time, *config.fairness})
    if not any(role.used for role in roles):
        raise DataError(
            f"the table must have a column to predict {config.target!r} from, got "
            f"{', '.join(f'{role.name} ({role.role})' for role in roles) or 'none'}; add one"
        )
    return roles


def _without_copies(table: RawTable, roles: list[ColumnRole], kept: set[str | None]) -> list[ColumnRole]:
    """Return roles where a column with the values of one before it is a copy, unless it has another purpose."""
    first: dict[Any, str] = {}
    found = []
    for role in roles:
        column = table[role.name]
        if role.used:
            values = column.values
            key = (column.kind, tuple(values) if column.kind == "text" else values.tobytes())
            name = first.setdefault(hash(key), role.name)
            if name != role.name and role.name not in kept and _same(table[name], column):
                role = replace(role, role="copy", why=f"its values are those of {name}")
        found.append(role)
    return found


def _same(one: RawColumn, other: RawColumn) -> bool:
    if one.kind != other.kind:
        return False
    return bool(np.array_equal(one.values, other.values, equal_nan=one.kind != "text"))


def _role_of(column: RawColumn, config: AutoConfig) -> ColumnRole:
    known = column.values[~column.missing]
    distinct = len(set(known.tolist())) if column.kind == "text" else len(np.unique(known))
    share = distinct / max(1, len(known))
    role, why = _judged(column, known, distinct, share)
    if role in USED and column.format:
        why = f"{why}, written as {column.format}"
    if column.name in config.drop:
        role, why = "dropped", "--drop names it"
    elif column.name == config.group:
        role, why = "group", "--group names it"
    missing = float(column.missing.mean())
    return ColumnRole(column.name, role, column.kind, distinct, missing, why, column.format)


def _judged(column: RawColumn, known: Array, distinct: int, share: float) -> tuple[str, str]:
    if column.kind == "other":
        return "other", f"{column.format} values are not read"
    if len(known) < LEAST_KNOWN:
        return "constant", "no values" if not len(known) else f"{len(known)} known values"
    if distinct == 1:
        return "constant", "one value in all rows"
    if column.kind == "date":
        return "date", f"{distinct} times"
    if column.kind == "number":
        return _judged_number(known, share)
    words = float(np.mean([len(text.split()) for text in known[:2000]]))
    if words >= TEXT_WORDS and share > 0.05:
        return "text", f"{words:.1f} words on average"
    if share >= UNIQUE_SHARE and len(known) >= LEAST_IDENTIFIED:
        return "identifier", f"{share:.0%} of its values are distinct"
    if share > CATEGORY_SHARE and words > 1.5:
        return "text", f"{words:.1f} words on average, {share:.0%} distinct"
    return "category", f"{distinct} values"


def _judged_number(known: Array, share: float) -> tuple[str, str]:
    whole = bool((known == np.floor(known)).all())
    if whole and share == 1.0 and len(known) >= LEAST_IDENTIFIED:
        ordered = np.sort(known)
        steps = np.diff(ordered)
        if (steps == steps[0]).all():
            return "identifier", "whole numbers that count the rows"
    return "number", "whole numbers" if whole else "numbers"


def find_task(table: RawTable, config: AutoConfig) -> tuple[Task, Array, Array]:
    """Return the task, the rows whose target is known, and their target: codes of classes, or numbers."""
    column = _target_column(table[config.target], config)
    rows = np.flatnonzero(~column.missing)
    values = column.values[rows]
    if len(rows) < LEAST_ROWS:
        raise DataError(
            f"the table must have at least {LEAST_ROWS} rows with a target, got {len(rows)}; collect more"
        )
    classes = config.task == "classes" or (config.task == "auto" and _is_class(column, values))
    if not classes and column.kind != "number":
        if config.task == "auto":
            raise DataError(
                f"the target must be classes or numbers, got {column.kind}s in {config.target!r}; name another column"
            )
        raise DataError(
            f"--task numbers must have a target of numbers, got {column.kind} in {config.target!r}; leave --task out"
        )
    kind = "classes" if classes else "numbers"
    metric = config.metric or METRICS[kind][0]
    if metric not in METRICS[kind]:
        raise UsageError(
            f"--metric must be one of {', '.join(METRICS[kind])} for a target of {kind}, got {metric!r}; choose one"
        )
    if not classes:
        if len(np.unique(values)) < 2:
            raise DataError(
                f"the target {config.target!r} must vary, got one value in all rows; name another"
            )
        return Task(config.target, metric, None), rows, values.astype(np.float64)
    return _class_task(config.target, metric, column, rows, values)


def _target_column(column: RawColumn, config: AutoConfig) -> RawColumn:
    """Return the target, as numbers where its text holds so many that they are no classes."""
    if column.kind != "text" or config.task == "classes":
        return column
    numbers = find_numbers(column.values)
    if numbers is None:
        return column
    made = RawColumn(column.name, "number", *numbers)
    return column if config.task == "auto" and _is_class(made, made.values[~made.missing]) else made


def _class_task(
    target: str, metric: str, column: RawColumn, rows: Array, values: Array
) -> tuple[Task, Array, Array]:
    found, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(found) < 2:
        only = found.tolist()[0]
        raise DataError(
            f"the target {target!r} must have at least 2 classes, got one: {only!r}; name another column"
        )
    common = counts >= LEAST_OF_CLASS
    if common.sum() < 2:
        amounts = (
            "if they are amounts, write --task numbers" if column.kind == "number" else "name another column"
        )
        raise DataError(
            f"the target {target!r} must have 2 classes of at least {LEAST_OF_CLASS} rows, got {int(common.sum())} "
            f"of {len(found)} values; {amounts}"
        )
    if not common.all():
        kept = common[codes]
        return _class_task(target, metric, column, rows[kept], values[kept])
    if metric == "auc" and len(found) > 2:
        raise UsageError(f"--metric auc must have 2 classes, got {len(found)}; write --metric log_loss")
    if column.kind == "number" and (found == np.floor(found)).all():
        found = found.astype(np.int64)
    names = tuple(one.item() if hasattr(one, "item") else one for one in found)
    return Task(target, metric, names), rows, codes.astype(np.int64)


def _is_class(column: RawColumn, values: Array) -> bool:
    if column.kind == "text":
        return True
    whole = bool((values == np.floor(values)).all())
    return column.kind == "number" and whole and len(np.unique(values)) <= FEW_CLASSES
