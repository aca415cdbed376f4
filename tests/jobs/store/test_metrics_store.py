from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from weft.jobs.metrics.batches import Report, encode_batch
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.jobs.store.metrics import (
    NewBatch,
    add_batch,
    add_batches,
    curve,
    history,
    jobs_to_pack,
    pack_job,
    summaries,
)

pytestmark = pytest.mark.xdist_group("databases")  # a server is started for them


@pytest.fixture
def store(database: Database) -> Callable[[Callable[[sa.Connection], Any]], Any]:
    """A function that carries out work in a transaction; job 1 exists."""

    def make(connection: sa.Connection) -> None:
        connection.execute(sa.insert(tables.user).values(id=1, name="ann", role="member", created_ms=0))
        connection.execute(
            sa.insert(tables.job).values(
                id=1, name="j", project="p", user_id=1, kind="run", state="running", queue="default",
                priority=50, spec="{}", created_ms=0, queued_ms=0,
            )
        )  # fmt: skip

    database.submit(make).result()
    return lambda work: database.submit(work).result(timeout=60)


def reports(name: str, values: list[float], first: int = 0) -> list[Report]:
    return [(name, first + index, 1000 + index, value) for index, value in enumerate(values)]


def send(store: Any, sequence: int, points: list[Report], source: str = "rank 0") -> bool:
    return bool(store(lambda c: add_batch(c, 1, source, sequence, encode_batch(points))))


def test_a_batch_that_is_sent_again_changes_nothing(store: Any) -> None:
    assert send(store, 0, reports("loss", [1.0, 2.0]))
    assert not send(store, 0, reports("loss", [1.0, 2.0]))
    assert send(store, 0, reports("loss", [9.0]), source="rank 1")
    store(lambda c: pack_job(c, 1))
    assert not send(store, 0, reports("loss", [1.0, 2.0]))  # after it was packed, too
    assert store(lambda c: history(c, 1, "loss")).values.tolist() == [1.0, 2.0, 9.0]


def test_batches_of_many_callers_are_written_together(store: Any, database: Database) -> None:
    def batch(number: int, job_id: int = 1) -> NewBatch:
        return NewBatch(job_id, "client", number, encode_batch(reports("loss", [float(number)])))

    held, free = threading.Event(), threading.Event()

    def block(connection: sa.Connection) -> None:
        held.set()
        free.wait(60)

    first = database.submit(block)
    assert held.wait(60)  # the writer is busy: what comes now waits, and is written in one go
    waiting = [database.submit(batch(number)) for number in (0, 1, 1, 2)]
    lost = database.submit(batch(3, job_id=99))  # its job was removed: it alone fails
    last = database.submit(batch(4))
    free.set()
    first.result(60)
    assert [one.result(60) for one in waiting] == [True, True, False, True]
    with pytest.raises(sa.exc.IntegrityError):
        lost.result(60)
    assert last.result(60) is True
    assert database.submit(batch(2)).result(60) is False
    assert store(lambda c: history(c, 1, "loss")).values.tolist() == [0.0, 1.0, 2.0, 4.0]


def test_points_are_read_the_same_before_and_after_packing(store: Any) -> None:
    values = [random.random() for _ in range(10_000)]
    values[1234], values[7777] = 1e6, math.nan
    for sequence in range(20):
        send(store, sequence, reports("loss", values[sequence * 500 : sequence * 500 + 500], sequence * 500))
        if sequence in (3, 4, 11, 15):
            store(lambda c: pack_job(c, 1))
        if sequence % 4 == 0:
            seen = store(lambda c: history(c, 1, "loss"))
            np.testing.assert_array_equal(seen.values, values[: sequence * 500 + 500])
    for _ in range(2):  # the last batches are not packed the first time
        chart = store(lambda c: curve(c, 1, "loss", most=100))
        assert len(chart) <= 100
        assert int(chart.count.sum()) == 10_000
        assert np.nanmax(chart.high) == 1e6
        assert store(lambda c: history(c, 1, "loss", 4000, 10)).values.tolist() == values[4000:4010]
        (summary,) = store(lambda c: summaries(c, 1))
        known = [value for value in values if not math.isnan(value)]
        assert (summary.points, summary.last, summary.last_step) == (10_000, values[-1], 9_999)
        assert (summary.lowest, summary.highest) == (min(known), max(known))
        store(lambda c: pack_job(c, 1))
    assert store(jobs_to_pack) == []


def test_a_range_of_steps_is_shown_in_full_detail(store: Any) -> None:
    values = np.sin(np.arange(300_000) / 1000).tolist()
    for sequence in range(30):
        send(
            store,
            sequence,
            reports("loss", values[sequence * 10_000 : sequence * 10_000 + 10_000], sequence * 10_000),
        )
    while store(lambda c: pack_job(c, 1, 7)):
        pass
    whole = store(lambda c: curve(c, 1, "loss", most=500))
    assert len(whole) <= 500
    assert int(whole.count.sum()) == 300_000
    detail = store(lambda c: curve(c, 1, "loss", first_step=123_000, last_step=123_400, most=500))
    assert detail.first_step.tolist() == list(range(123_000, 123_401))
    np.testing.assert_array_equal(detail.low, values[123_000:123_401])


def test_a_resumed_run_counts_its_steps_again(store: Any) -> None:
    send(store, 0, reports("loss", [float(step) for step in range(200)]))
    send(store, 1, reports("loss", [float(step) for step in range(100, 300)], first=100))
    store(lambda c: pack_job(c, 1))
    chart = store(lambda c: curve(c, 1, "loss", most=50))
    assert len(chart) <= 50
    assert int(chart.count.sum()) == 400


def test_many_metrics_in_many_batches(store: Any) -> None:
    rows = [
        (1, "rank 0", sequence, encode_batch([(f"m{n}", sequence, 0, float(n)) for n in range(20)]))
        for sequence in range(50)
    ]
    store(lambda c: add_batches(c, rows))
    store(lambda c: add_batches(c, rows))
    assert store(lambda c: pack_job(c, 1)) == 50
    found = store(lambda c: summaries(c, 1))
    assert [(summary.points, summary.last) for summary in found] == [(50, float(s.name[1:])) for s in found]
    assert len(found) == 20


def test_what_was_never_reported_is_empty(store: Any) -> None:
    assert store(lambda c: summaries(c, 1)) == ()
    assert len(store(lambda c: curve(c, 1, "loss"))) == 0
    assert len(store(lambda c: history(c, 1, "loss"))) == 0
    assert store(lambda c: pack_job(c, 1)) == 0


def test_postgresql_packs_batches_quickly_where_it_can(database: Database) -> None:
    if database.engine.dialect.name != "postgresql":
        pytest.skip("SQLite keeps them as they are")
    asked = "SELECT attcompression FROM pg_attribute WHERE attrelid = 'metric_batch'::regclass AND attname = 'data'"
    assert database.ask(lambda c: c.scalar(sa.text(asked))) == "l"
