"""Points of a study's jobs: each is given once and in order, whatever is packed between two looks."""

from __future__ import annotations

import random

import pytest
import sqlalchemy as sa

from weft.jobs.metrics.batches import encode_batch
from weft.jobs.reports.gathered import Gathered, Position
from weft.jobs.reports.tails import NewPieces, TailedPiece, positions
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.jobs.store.metrics import TAILED, add_batch, history, pack_job
from weft.jobs.studies.points import PointReader

pytestmark = pytest.mark.xdist_group("databases")
JOBS = (1, 2, 3)


@pytest.fixture
def jobs(database: Database) -> Database:
    """A database with three jobs."""

    def make(connection: sa.Connection) -> None:
        connection.execute(sa.insert(tables.user).values(id=1, name="ann", role="member", created_ms=0))
        row = {
            "name": "j",
            "project": "p",
            "user_id": 1,
            "kind": "run",
            "state": "running",
            "queue": "default",
            "priority": 50,
            "spec": "{}",
            "created_ms": 0,
            "queued_ms": 0,
        }
        connection.execute(sa.insert(tables.job), [{"id": number, **row} for number in JOBS])

    database.submit(make).result()
    return database


def test_points_are_given_once_and_in_order_whatever_is_packed(jobs: Database) -> None:
    draw, reader = random.Random(4), PointReader("loss")
    sent: dict[int, list[int]] = {number: [] for number in JOBS}
    given: dict[int, list[int]] = {number: [] for number in JOBS}
    position = 0

    def add(connection: sa.Connection, number: int) -> None:
        nonlocal position
        steps = range(len(sent[number]), len(sent[number]) + draw.randint(0, 3))
        points = [("loss", step, 0, float(step)) for step in steps] + [("other", 0, 0, 1.0)]
        source = TAILED + "1/rank-0.jsonl" if draw.random() < 0.7 else "client"
        add_batch(connection, number, source, position, encode_batch(points))
        position += 1
        sent[number].extend(steps)

    for _ in range(200):
        number, kind = draw.choice(JOBS), draw.random()
        if kind < 0.5:
            jobs.submit(lambda c, number=number: add(c, number)).result()  # type: ignore[misc]
        elif kind < 0.7:
            jobs.submit(lambda c, number=number: pack_job(c, number)).result()  # type: ignore[misc]
        else:
            some = draw.sample(JOBS, draw.randint(1, len(JOBS)))  # a trial that is paused is not asked for
            for job_id, points in jobs.ask(lambda c, some=some: reader.new_points(c, some)).items():  # type: ignore[misc]
                given[job_id] += points.steps.tolist()
    for job_id, points in jobs.ask(lambda c: reader.new_points(c, JOBS)).items():
        given[job_id] += points.steps.tolist()
    assert given == sent
    assert {number: reader.given(number) for number in JOBS} == {n: len(steps) for n, steps in sent.items()}


def piece(source: str, before: int, after: int, *values: float) -> TailedPiece:
    found = Gathered(points=[("loss", before + index, 0, value) for index, value in enumerate(values)])
    return TailedPiece(source, Position(total=before), Position(total=after), found)


def test_pieces_of_many_jobs_are_added_together_and_each_once(jobs: Database) -> None:
    first = [
        NewPieces(1, (piece("a", 0, 5, 1.0), piece("b", 0, 7, 2.0))),
        NewPieces(2, (piece("a", 0, 5, 3.0),)),
    ]
    assert jobs.submit(lambda c: NewPieces.write_all(c, first)).result() == [[True, True], [True]]
    # Another service has read the same, and one piece further; two pieces of a file in one transaction follow on.
    again = [*first, NewPieces(1, (piece("a", 5, 9, 4.0),)), NewPieces(1, (piece("a", 9, 11, 5.0),))]
    answers = jobs.submit(lambda c: NewPieces.write_all(c, again)).result()
    assert answers == [[False, False], [False], [True], [True]]
    loss = [jobs.ask(lambda c, n=n: history(c, n, "loss")).values.tolist() for n in (1, 2)]  # type: ignore[misc]
    assert loss == [[1.0, 2.0, 4.0, 5.0], [3.0]]
    places = jobs.ask(lambda c: positions(c, 1))
    assert {name: place.total for name, place in places.items()} == {"a": 11, "b": 7}


def test_a_number_of_a_batch_that_is_used_again_hides_no_points(jobs: Database) -> None:
    reader = PointReader("loss")

    def add(number: int, step: int) -> None:
        data = encode_batch([("loss", step, 0, 1.0)])
        jobs.submit(lambda c: add_batch(c, number, TAILED + "1/rank-0.jsonl", step, data)).result()

    def read() -> dict[int, list[int]]:
        found = jobs.ask(lambda c: reader.new_points(c, (1, 2)))
        return {number: points.steps.tolist() for number, points in found.items()}

    add(1, 0)
    add(2, 0)
    read()
    add(2, 1)
    assert read() == {1: [], 2: [1]}
    jobs.submit(lambda c: pack_job(c, 2)).result()  # its batches go, and SQLite gives their numbers again
    add(1, 1)
    assert read() == {1: [1], 2: []}
