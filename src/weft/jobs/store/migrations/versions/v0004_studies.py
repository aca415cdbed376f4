"""Studies: searches whose trials are jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables, which a database that was made with today's tables has."""
    if sa.inspect(op.get_bind()).has_table("study"):
        return
    op.create_table(
        "study",
        sa.Column("id", ID, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("project", sa.String(100), nullable=False),
        sa.Column("user_id", ID, sa.ForeignKey("user_account.id"), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("snapshot", sa.String(64)),
        sa.Column("view", sa.Text, nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_study_state", "study", ["state"])
    op.create_index("ix_study_user_id_id", "study", ["user_id", "id"])
    op.create_table(
        "study_event",
        _study(),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_table(
        "study_trial",
        _study(),
        sa.Column("trial", sa.Integer, primary_key=True),
        sa.Column("job_id", ID, sa.ForeignKey("job.id", ondelete="SET NULL")),
        sa.Column("starts", sa.Integer, nullable=False),
        sa.Column("resource", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_study_trial_job_id", "study_trial", ["job_id"])
    op.create_table(
        "study_request",
        sa.Column("id", ID, primary_key=True, autoincrement=True),
        sa.Column("study_id", ID, sa.ForeignKey("study.id", ondelete="CASCADE"), nullable=False),
        sa.Column("user_name", sa.String(100), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("ix_study_request_study_id_id", "study_request", ["study_id", "id"])


def _study() -> sa.Column[int]:
    return sa.Column("study_id", ID, sa.ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)


def downgrade() -> None:
    """Remove the tables."""
    for table in ("study_request", "study_trial", "study_event", "study"):
        op.drop_table(table)
