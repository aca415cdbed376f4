"""A store with one running job, and a way to follow run directories in a test."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from weft.jobs.store import tables
from weft.jobs.store.database import Database


def make_job(connection: sa.Connection, job_id: int = 1) -> None:
    """Insert a user, if there is none yet, and a running job."""
    if connection.scalar(sa.select(tables.user.c.id)) is None:
        connection.execute(sa.insert(tables.user).values(id=1, name="ann", role="member", created_ms=0))
    connection.execute(
        sa.insert(tables.job).values(
            id=job_id, name="j", project="p", user_id=1, kind="run", state="running", queue="default",
            priority=50, spec="{}", created_ms=0, queued_ms=0,
        )
    )  # fmt: skip


@pytest.fixture
def job_store(database: Database) -> Database:
    """A database in which job 1 runs."""
    database.submit(make_job).result(60)
    return database


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "attempt-1" / "run"
    (folder / "metrics").mkdir(parents=True)
    (tmp_path / "attempt-1" / "code").mkdir()
    return folder
