"""The tables of projects, data sets, models and deployments: what jobs read, and what became of what they wrote."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from weft.jobs.store.tables import Id, metadata

__all__ = [
    "dataset",
    "dataset_version",
    "deployment",
    "job_input",
    "metadata",
    "mlflow_model",
    "model_origin",
    "project",
]


def _id() -> Column[int]:
    return Column("id", Id, primary_key=True, autoincrement=True)


project = Table(  # MLflow's experiments; a project that only jobs name has no row until a client asks for it
    "project",
    metadata,
    _id(),
    Column("name", String(100), nullable=False, unique=True),
    Column("tags", Text, nullable=False),
    Column("deleted", Boolean, nullable=False, server_default=false()),
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)
job_input = Table(  # data that a job has read, by digest
    "job_input",
    metadata,
    Column("job_id", Id, ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(500), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("context", String(500), nullable=False, server_default=""),  # training, evaluation
    Column("source_type", String(100), nullable=False),  # dataset, path, s3, or a foreign client's word
    Column("source", Text, nullable=False),
    Column("description", Text, nullable=False),  # JSON: schema, profile, tags
)
dataset = Table(
    "dataset",
    metadata,
    _id(),
    Column("name", String(100), nullable=False, unique=True),
    Column("description", Text, nullable=False),
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("next_version", Integer, nullable=False),  # numbers are given once and never again
)
dataset_version = Table(
    "dataset_version",
    metadata,
    Column("dataset_id", Id, ForeignKey("dataset.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("source", Text, nullable=False),  # a path on the hosts, or s3://bucket/prefix
    Column("digest", String(64), nullable=False),  # of the manifest
    Column("manifest", Text, nullable=False),  # JSON: path, size and digest of each file
    Column("files", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
model_origin = Table(  # the job that a version in the model store came from
    "model_origin",
    metadata,
    Column("model", String(100), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("job_id", Id, ForeignKey("job.id", ondelete="SET NULL")),
    Column("path", Text, nullable=False),  # within the job's outputs
    Column("sha256", String(64), nullable=False),
    Column("lineage", Text, nullable=False),  # JSON: code, data and ledger, also for when the job is gone
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index(None, "job_id"),
)
deployment = Table(
    "deployment",
    metadata,
    _id(),
    Column("name", String(100), nullable=False),
    Column("model", String(100), nullable=False),
    Column("version", Integer, nullable=False),
    Column("previous", Text, nullable=False),  # JSON: versions served before, newest last
    Column("state", String(20), nullable=False),  # starting, running, failed, stopped
    Column("message", Text),
    Column("port", Integer),
    Column("pid", Integer),
    Column("pid_started", BigInteger),  # clock ticks since boot
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    UniqueConstraint("name"),
)
mlflow_model = Table(  # as MLflow's clients register them; not the models that the service serves
    "mlflow_model",
    metadata,
    Column("name", String(250), primary_key=True),
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("document", Text, nullable=False),  # JSON: versions, aliases, tags
)
