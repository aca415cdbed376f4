from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.lifecycle import StateError
from weft.jobs.spec.read import read_spec, resolve
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.jobs.store.events import events_after, newest_event
from weft.jobs.store.jobs import find_job, move_job, spec_of, submit_job
from weft.jobs.store.listing import JobFilter, count_by_state, list_jobs

pytestmark = pytest.mark.xdist_group("databases")  # a server is started for them
Store = Callable[[Callable[[sa.Connection], Any]], Any]


@pytest.fixture
def store(database: Database) -> Store:
    """A function that carries out work in a transaction; ann and bob have accounts."""
    users = [
        {"id": n, "name": name, "role": "member", "created_ms": 0} for n, name in ((1, "ann"), (2, "bob"))
    ]
    database.submit(lambda c: c.execute(sa.insert(tables.user), users)).result()
    return lambda work: database.submit(work).result(timeout=60)


def submit(store: Store, text: str = "run: train.py", user: int = 1) -> int:
    name = {1: "ann", 2: "bob"}[user]
    return int(store(lambda c: submit_job(c, resolve(read_spec(text)), user_id=user, user_name=name)))


def test_a_submitted_job_waits_with_its_specification(store: Store) -> None:
    number = submit(store, "run: train.py --x 1\nname: digits\ntags: {lr: '0.1'}\nqueue: {priority: 70}")
    found = store(lambda c: find_job(c, number))
    assert (found.name, found.state, found.priority, found.user_name) == ("digits", "queued", 70, "ann")
    assert found.tags == {"lr": "0.1"}
    assert store(lambda c: spec_of(c, number)).run == "train.py --x 1"
    assert store(lambda c: find_job(c, number, visible_to=2)) is None
    assert store(lambda c: find_job(c, 999)) is None


def test_a_job_on_hold_is_held_and_dependencies_must_exist(store: Store) -> None:
    held = submit(store, "run: a.py\nqueue: {hold: true}")
    assert store(lambda c: find_job(c, held)).state == "held"
    submit(store, f"run: a.py\nqueue: {{after: [{held}]}}")
    with pytest.raises(UsageError, match="must name jobs that exist, got first, 77"):
        submit(store, "run: a.py\nqueue: {after: [first, 77]}")
    assert store(lambda c: list_jobs(c, JobFilter())).total == 2


def test_pages_hold_each_job_once_newest_first(store: Store) -> None:
    numbers = [submit(store) for _ in range(7)]
    seen: list[int] = []
    mark: str | None = None
    for _ in range(3):
        page = store(partial(list_jobs, wanted=JobFilter(), most=3, after=mark))
        seen += [found.id for found in page.jobs]
        mark = page.next
        submit(store)  # what comes meanwhile does not shift the pages
    assert mark is None
    assert seen == sorted(numbers, reverse=True)
    with pytest.raises(UsageError, match="by the mark of the one before"):
        store(lambda c: list_jobs(c, JobFilter(), after="?"))


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (JobFilter(), {"one", "two", "three"}),
        (JobFilter(states=("held",)), {"two"}),
        (JobFilter(states=("held", "queued"), project="p"), {"one"}),
        (JobFilter(user_name="bob"), {"three"}),
        (JobFilter(visible_to=2), {"three"}),
        (JobFilter(text="TH"), {"three"}),
        (JobFilter(text="kind = b"), {"three"}),
        (JobFilter(text="%"), set()),
    ],
)
def test_filters(store: Store, wanted: JobFilter, names: set[str]) -> None:
    submit(store, "run: a.py\nname: one\nproject: p\ntags: {kind: a}")
    submit(store, "run: a.py\nname: two\nqueue: {hold: true}")
    submit(store, "run: a.py\nname: three\ntags: {kind: b}", user=2)
    page = store(lambda c: list_jobs(c, wanted))
    assert {found.name for found in page.jobs} == names
    assert page.total == len(names)


def test_each_change_of_state_is_told_and_nothing_is_missed(store: Store) -> None:
    number = submit(store)
    seen = store(newest_event)
    for state in ("staging", "starting", "running", "storing", "completed"):
        store(partial(move_job, job_id=number, after=state, message=f"now {state}"))
    told = store(lambda c: events_after(c, seen, [f"job:{number}"]))
    assert [event.data["state"] for event in told] == [
        "staging",
        "starting",
        "running",
        "storing",
        "completed",
    ]
    assert len(store(lambda c: events_after(c, seen))) == 10
    assert store(lambda c: events_after(c, told[-2].id, [f"job:{number}"])) == told[-1:]
    found = store(lambda c: find_job(c, number))
    assert found.started_ms is not None
    assert found.ended_ms is not None
    assert store(count_by_state) == {"completed": 1}


def test_a_change_that_cannot_be_leaves_all_as_it_was(store: Store) -> None:
    number = submit(store)
    before = store(newest_event)
    with pytest.raises(StateError):
        store(lambda c: move_job(c, number, "completed"))
    assert store(lambda c: find_job(c, number)).state == "queued"
    assert store(newest_event) == before


@pytest.mark.parametrize("sort", ["id", "-id", "name", "-name", "priority", "-started", "created", "state"])
def test_sorted_pages_hold_each_job_once(store: Store, sort: str) -> None:
    for number in range(7):
        submit(store, f"run: a.py\nname: j{number % 3}\nqueue: {{priority: {number % 2}}}")
    seen: list[Any] = []
    mark: str | None = None
    while True:
        page = store(partial(list_jobs, wanted=JobFilter(), most=2, after=mark, sort=sort))
        seen += page.jobs
        mark = page.next
        if mark is None:
            break
    assert len({found.id for found in seen}) == len(seen) == 7
    column = sort.removeprefix("-")
    if column in ("id", "name", "priority"):
        values = [(getattr(found, column), found.id) for found in seen]
        assert values == sorted(values, reverse=sort.startswith("-"))


def test_counts_leave_the_filter_by_state_out(store: Store) -> None:
    submit(store, "run: a.py\nqueue: {hold: true}\nname: x")
    first = submit(store, "run: a.py\nname: x")
    submit(store, "run: a.py\nname: other\ntags: {note: has-x}")
    page = store(partial(list_jobs, wanted=JobFilter(states=("queued",), text="x")))
    assert (page.total, page.counts) == (2, {"queued": 2, "held": 1})
    assert store(partial(list_jobs, wanted=JobFilter(text=str(first)))).total == 1
