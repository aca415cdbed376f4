"""The models that MLflow's clients register."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
TABLE = "mlflow_model"


def upgrade() -> None:
    """Make the table, which a database that was made with today's tables has."""
    if sa.inspect(op.get_bind()).has_table(TABLE):
        return
    op.create_table(
        TABLE,
        sa.Column("name", sa.String(250), primary_key=True),
        sa.Column("user_id", sa.BigInteger, sa.ForeignKey("user_account.id"), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table(TABLE)
