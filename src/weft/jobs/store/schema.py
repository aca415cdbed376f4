"""The schema's version: Alembic brings a database from any released version to today's."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from weft.errors import UsageError

_FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x77656674  # PostgreSQL's advisory lock: two services that start at once upgrade one after the other


def upgrade(engine: sa.Engine) -> None:
    """Make or upgrade the tables; nothing is touched where they are of a newer version."""
    config = _config()
    newest = ScriptDirectory.from_config(config).get_current_head()
    # One transaction, which SQLite begins by locking the file: of two services that start at once, one upgrades.
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        current = MigrationContext.configure(connection).get_current_revision()
        if current != newest:
            _refuse_newer(config, current)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.set_main_option("path_separator", "os")
    return config


def _refuse_newer(config: Config, current: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise UsageError(
            f"the database must be of a version that this weft knows, got {current!r}, which a newer one made; "
            "upgrade weft, or restore the backup made before that upgrade"
        )
