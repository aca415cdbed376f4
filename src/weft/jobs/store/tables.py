"""The tables of the store. Times are whole milliseconds since 1970; documents are JSON text.

Rows of `event` are never changed and their ids only grow, so a reader who knows the last id it saw misses nothing.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy import event as event_listener

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
# SQLite numbers rows by itself only where the key is INTEGER.
Id = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", Id, primary_key=True, autoincrement=True)


def _job(*, key: bool = False) -> Column[int]:
    return Column("job_id", Id, ForeignKey("job.id", ondelete="CASCADE"), nullable=False, primary_key=key)


user = Table(
    "user_account",
    metadata,
    _id(),
    Column("name", String(100), nullable=False, unique=True),
    Column("password_hash", String(200)),  # NULL: logs in by a link or a token alone
    Column("role", String(20), nullable=False),  # viewer, member, admin
    Column("system_user", String(100)),  # as whom their jobs run, where the service may do that
    Column("disabled", Boolean, nullable=False, server_default=false()),
    Column("created_ms", BigInteger, nullable=False),
)
token = Table(
    "token",
    metadata,
    _id(),
    Column("user_id", Id, ForeignKey("user_account.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(20), nullable=False),  # api, session, link
    Column("name", String(100), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),  # SHA-256 of the token, which is shown once
    Column("scopes", String(200), nullable=False),
    Column("expires_ms", BigInteger),
    Column("used_ms", BigInteger),
    Column("created_ms", BigInteger, nullable=False),
)
job = Table(
    "job",
    metadata,
    _id(),
    Column("name", String(200), nullable=False),
    Column("project", String(100), nullable=False),
    Column("user_id", Id, ForeignKey("user_account.id"), nullable=False),
    Column("kind", String(20), nullable=False),  # run, schedule (makes runs), tracked (by a foreign client)
    Column("state", String(20), nullable=False),
    Column("wanted", String(20)),  # what was asked for and is not done yet: stop, pause, preempt, time-out
    Column("queue", String(100), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("spec", Text, nullable=False),
    Column("snapshot", String(64)),  # digest of the code
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column(
        "retries", Integer, nullable=False, server_default="0"
    ),  # attempts that failed since it was queued
    Column("avoid", Text, nullable=False, server_default="[]"),  # hosts on which it failed
    Column("workers", Integer, nullable=False, server_default="0"),
    Column("min_workers", Integer, nullable=False, server_default="1"),
    Column("max_workers", Integer, nullable=False, server_default="1"),
    Column("workers_limit", Integer),  # of an elastic job: the size somebody scaled it to
    Column("progress", Float),  # 0 to 1, where the job tells
    Column("cause", String(20)),  # of a failure
    Column("message", Text),  # the last sentence about its state
    Column("not_before_ms", BigInteger, nullable=False, server_default="0"),
    Column("created_ms", BigInteger, nullable=False),
    Column("queued_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("ended_ms", BigInteger),
    Column("pinned", Boolean, nullable=False, server_default=false()),
    Column("parent_id", Id, ForeignKey("job.id", ondelete="SET NULL")),  # cloned or retried from
    Index(None, "state", "priority"),
    Index(None, "kind", "state"),
    # All columns by which lists are filtered and sorted: a page reads this in place of rows with whole specifications.
    Index(
        "ix_job_listing",
        "state",
        "project",
        "user_id",
        "id",
        "name",
        "queue",
        "priority",
        "created_ms",
        "started_ms",
        "ended_ms",
    ),
    Index(None, "parent_id"),
    Index(None, "project", "id"),
    Index(None, "user_id", "id"),
    Index(None, "ended_ms"),
)
attempt = Table(
    "attempt",
    metadata,
    _id(),
    _job(),
    Column("number", Integer, nullable=False),
    Column("run_dir", Text, nullable=False),
    Column("allocation", Text, nullable=False),  # host, workers, processors and accelerators of each
    Column("token", String(64), nullable=False),  # in the keeper's environment, by which it is found
    Column("asked", String(20)),  # the last signal that the keeper was sent: term, again, kill
    Column("asked_ms", BigInteger),
    Column("keeper_host", String(250)),
    Column("keeper_pid", Integer),
    Column("keeper_started", BigInteger),  # clock ticks since boot: a pid alone may be another's by now
    Column("boot_id", String(64)),
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("outcome", Text),
    Column("code", Integer),
    Column("cause", String(20)),  # of a failure
    Column("message", Text),
    UniqueConstraint("job_id", "number"),
    Index(None, "ended_ms"),
)
dependency = Table(
    "dependency",
    metadata,
    _job(key=True),
    Column("after_id", Id, ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
)
event = Table(
    "event",
    metadata,
    _id(),
    Column("time_ms", BigInteger, nullable=False),
    Column("topic", String(100), nullable=False),  # jobs, job:7, hosts
    Column("kind", String(50), nullable=False),
    Column("data", Text, nullable=False),
    Index(None, "topic", "id"),
    sqlite_autoincrement=True,  # ids are never used again, even after the newest rows are gone
)
param = Table(
    "param",
    metadata,
    _job(key=True),
    Column("name", String(250), primary_key=True),
    Column("value", Text, nullable=False),
)
tag = Table(
    "tag",
    metadata,
    _job(key=True),
    Column("name", String(250), primary_key=True),
    Column("value", Text, nullable=False),
)
metric = Table(
    "metric",
    metadata,
    _id(),
    _job(),
    Column("name", String(250), nullable=False),
    Column("points", BigInteger, nullable=False, server_default="0"),
    Column("last", Float),
    Column("last_step", BigInteger),
    Column("last_ms", BigInteger),
    Column("lowest", Float),
    Column("highest", Float),
    UniqueConstraint("job_id", "name"),
)
metric_batch = Table(
    "metric_batch",
    metadata,
    _id(),
    _job(),
    Column("source", String(100), nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the source: a batch sent again changes nothing
    Column("data", LargeBinary),  # points as they came; NULL once they are packed into chunks
    UniqueConstraint("job_id", "source", "sequence"),
)
# Points are packed again soon: PostgreSQL spends less on them by lz4, where it was built with that, than by itself.
event_listener.listen(
    metric_batch,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]
        "DO $$ BEGIN EXECUTE 'ALTER TABLE metric_batch ALTER COLUMN data SET COMPRESSION lz4'; "
        "EXCEPTION WHEN OTHERS THEN NULL; END $$"
    ).execute_if(dialect="postgresql"),
)
Index(
    "ix_metric_batch_unpacked",
    metric_batch.c.job_id,
    metric_batch.c.id,
    sqlite_where=metric_batch.c.data.is_not(None),
    postgresql_where=metric_batch.c.data.is_not(None),
)
tail = Table(  # how far files of a job were read, moved together with what was found in them
    "tail",
    metadata,
    _job(key=True),
    Column("source", String(100), primary_key=True),
    Column("position", BigInteger, nullable=False),  # bytes read so far
    Column("state", Text, nullable=False),
)
metric_chunk = Table(
    "metric_chunk",
    metadata,
    Column("metric_id", Id, ForeignKey("metric.id", ondelete="CASCADE"), primary_key=True),
    Column("level", Integer, primary_key=True),
    Column("first", BigInteger, primary_key=True),  # number of its first point or bucket
    Column("count", Integer, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
host = Table(
    "host",
    metadata,
    Column("name", String(250), primary_key=True),
    Column("state", String(20), nullable=False),  # up, drained, lost
    Column("labels", Text, nullable=False),
    Column("rack", String(100), nullable=False),
    Column("capacity", Text, nullable=False),  # cpus, memory_bytes, gpus
    Column("topology", Text),  # weft.topology's description
    Column("seen_ms", BigInteger),
    Column("message", Text),
)
usage = Table(  # of users, in seconds of the whole cluster, decayed to the time it was last added to
    "usage",
    metadata,
    Column("user_id", Id, ForeignKey("user_account.id", ondelete="CASCADE"), primary_key=True),
    Column("amount", Float, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)
quota = Table(  # of users: their weight in the fair share, and the most they may hold at a time
    "quota",
    metadata,
    Column("user_id", Id, ForeignKey("user_account.id", ondelete="CASCADE"), primary_key=True),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("cpus", Float),  # NULL: no limit
    Column("memory_bytes", Float),
    Column("gpus", Float),
)
snapshot = Table(
    "snapshot",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("manifest", Text, nullable=False),  # path, mode and digest of each file
    Column("git_commit", String(64)),
    Column("git_dirty", Boolean, nullable=False, server_default=false()),
    Column("bytes", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
finding = Table(
    "finding",
    metadata,
    _id(),
    _job(),
    Column("rule", String(50), nullable=False),
    Column("severity", String(20), nullable=False),
    Column("text", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("action", String(50)),  # that was taken
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    UniqueConstraint("job_id", "rule"),
)
secret = Table(
    "secret",
    metadata,
    Column("user_id", Id, ForeignKey("user_account.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
lease = Table(
    "lease",
    metadata,
    Column("name", String(50), primary_key=True),
    Column("holder", String(100), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)
audit = Table(
    "audit",
    metadata,
    _id(),
    Column("time_ms", BigInteger, nullable=False),
    Column("user_name", String(100), nullable=False),
    Column("action", String(50), nullable=False),
    Column("target", String(250), nullable=False),
    Column("detail", Text, nullable=False),
    Index(None, "time_ms"),
)
