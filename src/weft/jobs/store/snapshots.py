"""Snapshots of code in the store; their contents are in the blob store."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.code.snapshot import CodeSnapshot
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import snapshot


def add_snapshot(connection: sa.Connection, taken: CodeSnapshot) -> str:
    """Keep a snapshot, whose contents must be in the blob store, and return its digest; again changes nothing."""
    digest = taken.digest
    if connection.scalar(sa.select(snapshot.c.digest).where(snapshot.c.digest == digest)) is None:
        row = {
            "digest": digest,
            "manifest": msgspec.json.encode(taken).decode(),
            "git_commit": taken.git_commit,
            "git_dirty": taken.git_diff is not None,
            "bytes": taken.total_bytes,
            "created_ms": now_ms(),
        }
        connection.execute(sa.insert(snapshot), row)
    return digest


def load_snapshot(connection: sa.Connection, digest: str) -> CodeSnapshot:
    """Return a snapshot by its digest."""
    found = connection.scalar(sa.select(snapshot.c.manifest).where(snapshot.c.digest == digest))
    if found is None:
        raise UsageError(f"a snapshot must have been sent before, got {digest[:12]}; submit the folder again")
    return msgspec.json.decode(found, type=CodeSnapshot)
