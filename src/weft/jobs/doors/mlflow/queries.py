"""Searches for runs, from the data of `filters.py` to SQL for SQLite and PostgreSQL."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from weft.jobs.doors.mlflow.experiments import DEFAULT, DEFAULT_ID
from weft.jobs.doors.mlflow.filters import FilterComparison, Order
from weft.jobs.doors.mlflow.messages import STATUS_OF
from weft.jobs.store.data_tables import job_input, project
from weft.jobs.store.tables import job, metric, param, tag, user

DELETED = "weft.deleted"  # the tag of a run that MLflow's clients deleted and may restore
_FIRST_MS = sa.func.coalesce(job.c.started_ms, job.c.created_ms)
_NUMBER = sa.case((project.c.name == DEFAULT, DEFAULT_ID), else_=sa.cast(project.c.id, sa.String))
_RUN_ID = sa.cast(job.c.id, sa.String)
_ATTRIBUTES: dict[str, sa.ColumnElement[Any]] = {
    "run_id": _RUN_ID,
    "run_name": job.c.name,
    "user_id": user.c.name,
    "status": sa.case(dict(STATUS_OF), value=job.c.state),
    "artifact_uri": sa.literal("mlflow-artifacts:/") + _NUMBER + "/" + _RUN_ID + "/artifacts",
    "start_time": _FIRST_MS,
    "end_time": job.c.ended_ms,
}


def find_runs(
    dialect: str,
    projects: Sequence[str],
    wanted: Sequence[FilterComparison],
    orders: Sequence[Order],
    *,
    view: str = "ACTIVE_ONLY",
    visible_to: int | None = None,
) -> sa.Select[int]:
    """Return the statement that gives the ids of runs in their order."""
    joined = job.join(user, user.c.id == job.c.user_id).outerjoin(project, project.c.name == job.c.project)
    keys = []
    for index, order in enumerate(orders):
        joined, key = _sort_key(joined, order, index)
        # PostgreSQL's NaN is above all numbers; MLflow puts it at the end, whatever the direction.
        keys.append((key.asc() if order.ascending else key.desc()).nulls_last())
    found = sa.select(job.c.id).select_from(joined).where(job.c.project.in_(projects))
    if visible_to is not None:
        found = found.where(job.c.user_id == visible_to)
    if view != "ALL":
        gone = sa.exists().where(tag.c.job_id == job.c.id, tag.c.name == DELETED)
        found = found.where(gone if view == "DELETED_ONLY" else ~gone)
    found = found.where(*(_condition(dialect, comparison) for comparison in wanted))
    return found.order_by(*keys, _FIRST_MS.desc(), job.c.id.desc())


def _sort_key(joined: Any, order: Order, index: int) -> tuple[Any, Any]:
    """Return the tables with the one that an order needs, and what it sorts by."""
    if order.kind == "attribute":
        return joined, _ATTRIBUTES[order.key]
    table = {"metric": metric, "param": param, "tag": tag}[order.kind].alias(f"order_{index}")
    value: Any = table.c.last if order.kind == "metric" else table.c.value
    if order.kind == "metric":
        value = sa.case((_is_number(value), value))
    on = sa.and_(table.c.job_id == job.c.id, table.c.name == order.key)
    return joined.outerjoin(table, on), value


def _is_number(value: Any) -> Any:
    """Return the condition that a value is not NaN: SQLite keeps NaN as NULL, PostgreSQL above infinity."""
    return value <= sa.literal(float("inf"), sa.Float)


def _condition(dialect: str, wanted: FilterComparison) -> sa.ColumnElement[bool]:
    if wanted.kind == "attribute":
        return _compare(dialect, _ATTRIBUTES[wanted.key], wanted)
    if wanted.kind == "dataset":
        read = sa.exists().where(job_input.c.job_id == job.c.id)
        return read.where(_compare(dialect, job_input.c[wanted.key], wanted))
    table = {"metric": metric, "param": param, "tag": tag}[wanted.kind]
    mine = sa.exists().where(table.c.job_id == job.c.id, table.c.name == wanted.key)
    if wanted.comparator == "IS NULL":
        return ~mine
    if wanted.comparator == "IS NOT NULL":
        return mine
    if wanted.kind == "metric":
        return mine.where(_is_number(table.c.last), _compare(dialect, table.c.last, wanted))
    return mine.where(_compare(dialect, table.c.value, wanted))


def _compare(dialect: str, column: Any, wanted: FilterComparison) -> sa.ColumnElement[bool]:
    value: Any = wanted.value
    if wanted.comparator == "LIKE":
        # SQLite's LIKE takes no notice of case; its GLOB does.
        return column.op("GLOB")(_glob(value)) if dialect == "sqlite" else column.like(value)  # type: ignore[no-any-return]
    found: sa.ColumnElement[bool] = _OPERATORS[wanted.comparator](column, value)
    return found


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "ILIKE": lambda column, value: sa.func.lower(column).like(value.lower()),
    "IN": lambda column, value: column.in_(value),
    "NOT IN": lambda column, value: column.not_in(value),
}


def _glob(pattern: str) -> str:
    """Return the pattern of GLOB that means what one of LIKE means."""
    signs = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    return "".join(signs.get(sign, sign) for sign in pattern)
