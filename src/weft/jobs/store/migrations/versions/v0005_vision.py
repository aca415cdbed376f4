"""Trained models of pictures, and projects."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables, which a database that was made with today's tables has."""
    if sa.inspect(op.get_bind()).has_table("vision_project"):
        return
    op.create_table(
        "vision_project",
        sa.Column("id", ID, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(100), nullable=False, unique=True),
        sa.Column("description", sa.Text, nullable=False, server_default=""),
        sa.Column("enforce", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("auto_deploy", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("datasets", sa.Text, nullable=False, server_default="[]"),
        sa.Column("user_id", ID, sa.ForeignKey("user_account.id"), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
    )
    project = sa.ForeignKey("vision_project.id", ondelete="SET NULL", name="fk_vision_model_project_id")
    op.create_table(
        "vision_model",
        sa.Column("model", sa.String(100), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("job_id", ID, sa.ForeignKey("job.id", ondelete="SET NULL")),
        sa.Column("task", sa.String(30), nullable=False),
        sa.Column("dataset", sa.String(64), nullable=False, server_default=""),
        sa.Column("dataset_name", sa.String(100), nullable=False, server_default=""),
        sa.Column("dataset_version", sa.Integer, nullable=False, server_default="0"),
        sa.Column("network", sa.String(100), nullable=False, server_default=""),
        sa.Column("score_name", sa.String(50), nullable=False, server_default=""),
        sa.Column("score", sa.Float),
        sa.Column("status", sa.String(20), nullable=False, server_default="untested"),
        sa.Column("project_id", ID, project),
        sa.Column("user_id", ID, sa.ForeignKey("user_account.id"), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_vision_model_job_id", "vision_model", ["job_id"])
    op.create_index("ix_vision_model_project_id", "vision_model", ["project_id"])


def downgrade() -> None:
    """Remove the tables."""
    for table in ("vision_model", "vision_project"):
        op.drop_table(table)
