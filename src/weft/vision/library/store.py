"""The database of a library: opened, brought to today's tables, read and written in transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.library.tables import action, metadata, schema, setting

BUSY_MS = 60_000  # for which SQLite waits for another process's write
_WRITE_LOCK = 0x77656676  # PostgreSQL's advisory lock of those who write
Step = Callable[[sa.Connection], None]
# Steps from the tables of one release to those of the next; tables that are made anew have taken all of them.
STEPS: tuple[Step, ...] = (lambda connection: metadata.create_all(connection, [setting, action]),)


class LibraryStore:
    """The tables of a library; may be used from several threads and processes."""

    def __init__(self, address: str) -> None:
        url = sa.make_url(address)
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        self.engine = sa.create_engine(url, pool_size=8, max_overflow=16, pool_pre_ping=True)
        if url.get_backend_name() == "sqlite":
            sa.event.listen(self.engine, "connect", _set_up_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        self._upgrade()

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that no other writer shares."""
        with self.engine.execution_options(writes=True).begin() as connection:
            if connection.dialect.name == "postgresql":  # SQLite does it by itself
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")
            yield connection

    def _upgrade(self) -> None:
        with self.writing() as connection:
            made = not sa.inspect(connection).has_table("vision_schema")
            if made:
                metadata.create_all(connection)
                connection.execute(sa.insert(schema), {"number": len(STEPS)})
                return
            taken = connection.scalar(sa.select(sa.func.max(schema.c.number))) or 0
            if taken > len(STEPS):
                raise PictureError(
                    f"the library must be of a version that this weft knows, got step {taken}, which a newer one made; "
                    "upgrade weft"
                )
            for number, step in enumerate(STEPS[taken:], taken + 1):
                step(connection)
                connection.execute(sa.insert(schema), {"number": number})


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _set_up_sqlite(connection: Any, record: Any) -> None:
    """Readers go on while one writes; a commit outlives the process."""
    connection.isolation_level = None
    for pragma in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        f"busy_timeout = {BUSY_MS}",
        "cache_size = -65536",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
