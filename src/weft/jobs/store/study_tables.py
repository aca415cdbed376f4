"""The tables of studies: their events, the jobs of their trials, and what they were asked for and have not done."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text

from weft.jobs.store.tables import Id, metadata


def _study() -> Column[int]:
    return Column("study_id", Id, ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)


study = Table(
    "study",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("name", String(100), nullable=False),
    Column("project", String(100), nullable=False),
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("state", String(20), nullable=False),  # running, paused, stopped, completed, failed
    Column("snapshot", String(64)),  # digest of the code of its trials
    Column("view", Text, nullable=False),  # the study at a glance, as lists show it
    Column("events", BigInteger, nullable=False, server_default="0"),  # how many there are
    Column("created_ms", BigInteger, nullable=False),
    Index(None, "state"),
    Index(None, "user_id", "id"),
)
study_event = Table(  # from which its state is made; rows are never changed
    "study_event",
    metadata,
    _study(),
    Column("number", BigInteger, primary_key=True),
    Column("data", Text, nullable=False),
)
study_trial = Table(
    "study_trial",
    metadata,
    _study(),
    Column("trial", Integer, primary_key=True),
    Column("job_id", Id, ForeignKey("job.id", ondelete="SET NULL")),
    Column("starts", Integer, nullable=False),  # of the trial, that its job was told of
    Column("resource", BigInteger, nullable=False),  # that its job was told to use
    Index(None, "job_id"),
)
study_request = Table(
    "study_request",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("study_id", Id, ForeignKey("study.id", ondelete="CASCADE"), nullable=False),
    Column("user_name", String(100), nullable=False),
    Column("data", Text, nullable=False),
    Index(None, "study_id", "id"),
)
TABLES = (study, study_event, study_trial, study_request)
