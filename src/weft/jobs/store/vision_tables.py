"""The tables of trained models of pictures: their results, their place in a work flow, and projects."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    false,
)

from weft.jobs.store.tables import Id, metadata

__all__ = ["metadata", "vision_model", "vision_project"]

vision_project = Table(  # data sets and models that belong together
    "vision_project",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("description", Text, nullable=False, server_default=""),
    Column("enforce", Boolean, nullable=False, server_default=false()),  # only production models are deployed
    Column("auto_deploy", Boolean, nullable=False, server_default=false()),  # the newest model is served
    Column("datasets", Text, nullable=False, server_default="[]"),  # JSON: ids of data sets of pictures
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)
vision_model = Table(  # a version in the model store that a training of pictures made
    "vision_model",
    metadata,
    Column("model", String(100), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("job_id", Id, ForeignKey("job.id", ondelete="SET NULL")),
    Column("task", String(30), nullable=False),
    Column("dataset", String(64), nullable=False, server_default=""),  # id in the library
    Column("dataset_name", String(100), nullable=False, server_default=""),
    Column("dataset_version", Integer, nullable=False, server_default="0"),
    Column("network", String(100), nullable=False, server_default=""),
    Column("score_name", String(50), nullable=False, server_default=""),
    Column("score", Float),
    Column("status", String(20), nullable=False, server_default="untested"),  # untested, production, rejected
    Column(
        "project_id",
        Id,
        ForeignKey("vision_project.id", ondelete="SET NULL", name="fk_vision_model_project_id"),
    ),
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Index(None, "job_id"),
    Index(None, "project_id"),
)
