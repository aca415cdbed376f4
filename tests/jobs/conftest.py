"""Databases for tests: SQLite in a file, and a PostgreSQL server of our own, made once for a test run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from testing.cluster.waiting import wait_until

from weft.jobs.store.database import Database


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str | None]:
    """The address of a server that listens on a socket alone; None where PostgreSQL is not installed."""
    programs = _programs()
    if programs is None:
        yield None
        return
    # Not in pytest's folder: that is closed to the account that the server runs under.
    with (
        tempfile.TemporaryDirectory(prefix="weft-postgres-") as folder,
        _server(programs, Path(folder)) as address,
    ):
        yield address


@contextmanager
def _server(programs: Path, folder: Path) -> Iterator[str]:
    account: dict[str, Any] = {}
    if os.getuid() == 0:  # as which the server refuses to run
        account = {"user": "postgres", "group": "postgres", "extra_groups": ()}
        shutil.chown(folder, "postgres", "postgres")
    quiet: Any = {"cwd": "/", "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **account}
    make = [str(programs / "initdb"), "-D", str(folder), "-U", "weft", "--auth=trust", "--no-sync"]
    subprocess.run(make, check=True, **quiet)
    settings = ("-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off")
    server = subprocess.Popen([str(programs / "postgres"), "-D", str(folder), *settings], **quiet)
    try:
        ask = [str(programs / "pg_isready"), "-q", "-h", str(folder), "-t", "1"]
        wait_until(lambda: subprocess.run(ask, check=False).returncode == 0, "PostgreSQL", 60.0)
        yield f"postgresql://weft@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGQUIT)  # at once, without a checkpoint
        server.wait(30)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path, postgres: str | None) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/weft.db"
    if postgres is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = postgres
    name = f"test_{os.getpid()}_{abs(hash(str(tmp_path)))}"
    engine = sa.create_engine(
        sa.make_url(server).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    opened = Database.open(address)
    yield opened
    opened.close()
