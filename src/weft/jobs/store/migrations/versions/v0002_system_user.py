"""Accounts have a system user, as whom their jobs run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
TABLE, COLUMN = "user_account", "system_user"


def upgrade() -> None:
    """Add the column, which a database that was made with today's tables has."""
    known = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(TABLE)}
    if COLUMN not in known:
        with op.batch_alter_table(TABLE) as table:
            table.add_column(sa.Column(COLUMN, sa.String(100)))


def downgrade() -> None:
    """Remove the column."""
    with op.batch_alter_table(TABLE) as table:
        table.drop_column(COLUMN)
