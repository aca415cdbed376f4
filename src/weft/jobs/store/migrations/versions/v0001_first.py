"""The first schema: all tables as they were in the first release."""

from __future__ import annotations

from alembic import op

from weft.jobs.store.migrations.declared import METADATA

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    METADATA.create_all(op.get_bind())


def downgrade() -> None:
    """Remove all tables."""
    METADATA.drop_all(op.get_bind())
