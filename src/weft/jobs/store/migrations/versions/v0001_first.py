"""The first schema: all tables as they were in the first release."""

from __future__ import annotations

from alembic import op

from weft.jobs.store.data_tables import metadata  # with the tables of both modules

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Remove all tables."""
    metadata.drop_all(op.get_bind())
