"""The tables of the web interface: webhooks, what is sent to them, and answers kept for requests sent again."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    true,
)

from weft.jobs.store.tables import Id, metadata

webhook = Table(
    "webhook",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("user_id", Id, ForeignKey("user_account.id", ondelete="CASCADE"), nullable=False),
    Column("url", String(2000), nullable=False),
    Column("events", String(500), nullable=False),
    Column("project", String(250)),  # NULL: of all projects
    Column("sealed_key", LargeBinary, nullable=False),  # signs what is sent
    Column("active", Boolean, nullable=False, server_default=true()),
    Column("created_ms", BigInteger, nullable=False),
)
delivery = Table(
    "delivery",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("webhook_id", Id, ForeignKey("webhook.id", ondelete="CASCADE")),  # NULL: of a job's specification
    Column("url", String(2000), nullable=False),
    Column("event", String(50), nullable=False),
    Column("job_id", Id, ForeignKey("job.id", ondelete="CASCADE")),
    Column("once", String(100), unique=True),  # the event and the address: made once, whoever sees the event
    Column("body", Text, nullable=False),
    Column("state", String(20), nullable=False),  # waiting, delivered, failed
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("status", Integer),
    Column("message", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("next_ms", BigInteger),
    Index(None, "state", "next_ms"),
)
outbox = Table(  # the last event that deliveries were made of
    "outbox",
    metadata,
    Column("name", String(50), primary_key=True),
    Column("event_id", BigInteger, nullable=False),
)
idempotency = Table(
    "idempotency",
    metadata,
    Column("user_id", Id, ForeignKey("user_account.id", ondelete="CASCADE"), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("digest", String(64), nullable=False),  # of the request, which must be the same
    Column("status", Integer, nullable=False),  # 0: it is being worked on
    Column("answer", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index(None, "created_ms"),
)
