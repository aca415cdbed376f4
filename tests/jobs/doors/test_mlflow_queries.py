"""Searches for runs as SQL, on SQLite and on PostgreSQL: both must find the same."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.mlflow import records, runs
from weft.jobs.doors.mlflow.filters import parse_filter, parse_orders
from weft.jobs.doors.mlflow.handlers import Tracking
from weft.jobs.doors.mlflow.messages import CreateRun, KeyValue, LogBatch, MetricPoint
from weft.jobs.doors.mlflow.queries import find_runs
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.jobs.store.metrics import pack_job

pytestmark = pytest.mark.xdist_group("databases")
ANN = Caller(1, "ann", "member")
RUNS = (  # name, loss, model
    ("Alpha", 0.5, "cnn"),
    ("beta_1", 0.1, "mlp"),
    ("gamma", float("nan"), "CNN*"),
    ("delta", float("inf"), "[x]"),
    ("empty", None, None),
)


@pytest.fixture
def names(database: Database) -> Any:
    """A function that returns the names of the runs that a search finds."""

    def fill(connection: sa.Connection) -> None:
        connection.execute(sa.insert(tables.user).values(id=1, name="ann", role="member", created_ms=0))
        for index, (name, loss, model) in enumerate(RUNS):
            run_id = runs.begin(connection, ANN, CreateRun(run_name=name, start_time=1000 + index))
            points = (
                [MetricPoint("loss", 9.0, 1), MetricPoint("loss", loss, 2, 1)] if loss is not None else []
            )
            params = [KeyValue("model", model)] if model is not None else []
            records.LoggedBatch(LogBatch(str(run_id), tuple(points), tuple(params))).write(connection, ANN)
            pack_job(connection, run_id)

    database.submit(fill).result()

    def search(filter_: str = "", *orders: str) -> list[str]:
        dialect = database.engine.dialect.name
        found = find_runs(dialect, ["default"], parse_filter(filter_), parse_orders(orders))
        numbers = database.ask(lambda c: list(c.scalars(found)))
        shown = database.ask(lambda c: runs.show_runs(c, numbers))
        return [run["info"]["run_name"] for run in shown]

    return search


def test_both_databases_find_the_same(names: Any) -> None:
    assert names() == ["empty", "delta", "gamma", "beta_1", "Alpha"]
    assert names("metrics.loss < 1") == ["beta_1", "Alpha"]
    assert names("metrics.loss > 0.3") == ["delta", "Alpha"]
    assert names("metrics.loss != 0.1") == ["delta", "Alpha"]  # NaN is no number
    assert names("params.model LIKE 'c%'") == ["Alpha"]
    assert names("params.model LIKE 'CNN*'") == ["gamma"]
    assert names("params.model LIKE '[x]'") == ["delta"]
    assert names("params.model ILIKE 'c%'") == ["gamma", "Alpha"]
    assert names("run_name LIKE 'beta__'") == ["beta_1"]
    assert names("params.model IS NULL") == ["empty"]
    assert names("start_time >= 1003") == ["empty", "delta"]
    assert names("attributes.status IN ('RUNNING') and user_id = 'ann'") == names()
    assert names("run_id = '1' and artifact_uri LIKE 'mlflow-artifacts:/0/1/%'") == ["Alpha"]


def test_both_databases_sort_alike(names: Any) -> None:
    assert names("", "metrics.loss ASC") == ["beta_1", "Alpha", "delta", "empty", "gamma"]
    assert names("", "metrics.loss DESC") == ["delta", "Alpha", "beta_1", "empty", "gamma"]
    assert names("params.model IS NOT NULL", "start_time ASC") == ["Alpha", "beta_1", "gamma", "delta"]
    assert names("", "attributes.status ASC", "run_id DESC")[0] == "empty"


def test_points_of_a_run_that_was_removed_after_it_was_checked_are_refused(database: Database) -> None:
    batch = records.LoggedBatch(LogBatch("7", (MetricPoint("loss", 1.0, 1),)))
    service: Any = SimpleNamespace(database=database)
    with pytest.raises(DoorError, match="a job must exist, got 7"):
        asyncio.run(Tracking(service).write_points(batch))
