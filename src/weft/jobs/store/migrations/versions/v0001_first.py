"""The first schema: all tables as they were in the first release."""

from __future__ import annotations

from alembic import op

from weft.jobs.store.data_tables import project
from weft.jobs.store.study_tables import study
from weft.jobs.store.web_tables import webhook

revision = "0001"
down_revision = None
METADATA = project.metadata
assert METADATA is webhook.metadata is study.metadata  # of the tables of all modules


def upgrade() -> None:
    """Make all tables."""
    METADATA.create_all(op.get_bind())


def downgrade() -> None:
    """Remove all tables."""
    METADATA.drop_all(op.get_bind())
