"""The schema's version: Alembic brings a database from any released version to today's.

A database that is empty, or of today's version, needs no migration: its tables are made as they are declared, and
Alembic, which takes longer to import than both take, is left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from weft.errors import UsageError

if TYPE_CHECKING:
    from alembic.config import Config

_FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x77656674  # PostgreSQL's advisory lock: two services that start at once upgrade one after the other
_VERSION = sa.table("alembic_version", sa.column("version_num"))  # Alembic's own
_MAKE_VERSION = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def upgrade(engine: sa.Engine) -> None:
    """Make or upgrade the tables; nothing is touched where they are of a newer version."""
    newest = newest_version()
    # One transaction, which SQLite begins by locking the file: of two services that start at once, one upgrades.
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        if not sa.inspect(connection).has_table(_VERSION.name):
            _make(connection, newest)
        elif (current := connection.scalar(sa.select(_VERSION.c.version_num))) != newest:
            _migrate(connection, current)


def newest_version() -> str:
    """Return the version that this weft makes: migrations are named v0001_what.py, each with its version."""
    return max(path.name[1:5] for path in (_FOLDER / "versions").glob("v[0-9]*.py"))


def _make(connection: sa.Connection, version: str) -> None:
    """Make all tables, and say which version they are."""
    from weft.jobs.store.migrations.declared import METADATA

    METADATA.create_all(connection)
    connection.exec_driver_sql(_MAKE_VERSION)
    connection.execute(sa.insert(_VERSION).values(version_num=version))


def _migrate(connection: sa.Connection, current: str | None) -> None:
    from alembic import command

    config = _config()
    _refuse_newer(config, current)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.set_main_option("path_separator", "os")
    return config


def _refuse_newer(config: Config, current: str | None) -> None:
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise UsageError(
            f"the database must be of a version that this weft knows, got {current!r}, which a newer one made; "
            "upgrade weft, or restore the backup made before that upgrade"
        )
