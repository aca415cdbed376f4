"""Retention: who goes and why, what stays, and what is swept up after them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UsageError
from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.snapshot import CodeSnapshot, SnapshotFile
from weft.jobs.spec.read import read_spec, resolve
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import move_job, submit_job
from weft.jobs.store.snapshots import add_snapshot
from weft.jobs.store.tables import job, snapshot, user
from weft.jobs.upkeep.retention import (
    DAY_MS,
    KeptJob,
    RetentionPolicy,
    candidates,
    drop_blobs,
    drop_old_rows,
    plan_removals,
)

NOW = 1000 * DAY_MS
JOBS = st.lists(
    st.builds(KeptJob, st.integers(1, 10**6), st.just("x"), st.integers(0, NOW), st.integers(0, 1000)),
    unique_by=lambda found: found.id,
    max_size=20,
)


def test_the_old_go_first_then_as_many_as_needed_for_the_bound() -> None:
    jobs = [KeptJob(n, f"job-{n}", NOW - n * DAY_MS, 100) for n in (40, 30, 5, 1)]
    gone = plan_removals(jobs, RetentionPolicy(days=30, most_bytes=150), at_ms=NOW)
    assert [one.job.id for one in gone] == [40, 30, 5]
    assert [one.why for one in gone] == [
        "it ended 40 days ago",
        "it ended 30 days ago",
        "all jobs have 200 B of files",
    ]
    assert plan_removals(jobs, RetentionPolicy(), at_ms=NOW) == ()


@given(
    jobs=JOBS,
    days=st.none() | st.integers(1, 900),
    most=st.none() | st.integers(0, 5000),
    other=st.integers(0, 99),
)
def test_what_stays_keeps_the_bounds(
    jobs: list[KeptJob], days: int | None, most: int | None, other: int
) -> None:
    gone = {
        one.job
        for one in plan_removals(
            jobs, RetentionPolicy(days=days, most_bytes=most), at_ms=NOW, other_bytes=other
        )
    }
    left = [found for found in jobs if found not in gone]
    if days is not None:
        assert all(NOW - found.ended_ms < days * DAY_MS for found in left)
    if most is not None:
        assert not left or other + sum(found.bytes for found in left) <= most
    if days is None and most is None:
        assert not gone


def test_bounds_must_be_sensible() -> None:
    with pytest.raises(UsageError, match="days must be at least 1"):
        RetentionPolicy(days=0)
    with pytest.raises(UsageError, match="most bytes"):
        RetentionPolicy(most_bytes=-1)


def test_pinned_running_and_needed_jobs_are_no_candidates(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/weft.db")

    def work(connection: sa.Connection) -> list[int]:
        connection.execute(sa.insert(user), {"id": 1, "name": "ann", "role": "member", "created_ms": 0})
        numbers = []
        for text in ("run: a", "run: b", "run: c", "run: d", "run: e\nqueue: {after: [3]}"):
            numbers.append(submit_job(connection, resolve(read_spec(text)), user_id=1, user_name="ann"))
        for number in numbers[:3]:
            move_job(connection, number, "stopped")
        connection.execute(sa.update(job).where(job.c.id == 2).values(pinned=True))
        return numbers

    database.submit(work).result()
    for number in (1, 4):
        folder = tmp_path / "jobs" / str(number) / "attempt-1"
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 10 * number)
    found, other = database.ask(lambda c: candidates(c, tmp_path))
    assert [(one.id, one.bytes) for one in found] == [
        (1, 10)
    ]  # 2 is pinned, 5 waits for 3, 4 and 5 wait themselves
    assert other == 40
    database.close()


def test_contents_that_no_job_needs_are_removed_and_new_uploads_stay(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/weft.db")
    blobs = BlobStore(tmp_path / "blobs")
    digests = [hashlib.sha256(data).hexdigest() for data in (b"used", b"unused", b"new")]
    for digest, data in zip(digests, (b"used", b"unused", b"new"), strict=True):
        blobs.add(digest, data)
    for digest in digests[:2]:
        os.utime(tmp_path / "blobs" / digest[:2] / digest[2:], (1, 1))
    taken = [CodeSnapshot((SnapshotFile("a.py", "file", digest, 4),)) for digest in digests[:2]]

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.insert(user), {"id": 1, "name": "ann", "role": "member", "created_ms": 0})
        for one in taken:
            add_snapshot(connection, one)
        connection.execute(sa.update(snapshot).values(created_ms=1))
        spec = resolve(read_spec("run: a.py"))
        submit_job(connection, spec, user_id=1, user_name="ann", snapshot=taken[0].digest)
        drop_old_rows(connection)

    database.submit(work).result()
    assert database.submit(lambda c: drop_blobs(c, blobs)).result() == len(b"unused")
    assert blobs.missing(digests) == (digests[1],)
    database.close()
