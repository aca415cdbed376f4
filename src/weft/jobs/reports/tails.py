"""The positions of tailed files in the store, moved in the transaction that adds what was read.

A position moves only from where the reader believed it to be. So a piece of a file counts once, whenever a service is
killed, and even where two services read the same file for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.metrics.batches import encode_batch
from weft.jobs.reports.gathered import Gathered, Position
from weft.jobs.store.events import add_event
from weft.jobs.store.metrics import TAILED, add_batch
from weft.jobs.store.tables import job, tail

LONGEST_SOURCE = 100  # in the store


@dataclass(frozen=True)
class TailedPiece:
    """A piece of a file: where it begins and ends, and what it holds."""

    source: str
    before: Position
    after: Position
    found: Gathered


def positions(connection: sa.Connection, job_id: int) -> dict[str, Position]:
    """Return how far each source of a job was read."""
    rows = connection.execute(sa.select(tail.c.source, tail.c.state).where(tail.c.job_id == job_id))
    return {row.source: msgspec.json.decode(row.state, type=Position) for row in rows}


def add_pieces(connection: sa.Connection, job_id: int, pieces: list[TailedPiece]) -> list[bool]:
    """Add what pieces hold; False for each that another service has added already."""
    return [_add(connection, job_id, piece) for piece in pieces]


def _add(connection: sa.Connection, job_id: int, piece: TailedPiece) -> bool:
    if not _move(connection, job_id, piece):
        return False
    found = piece.found
    if found.points:
        added = add_batch(
            connection, job_id, TAILED + piece.source, piece.before.total, encode_batch(found.points)
        )
        assert added, "a position that moved has no batch yet"
    if found.progress is not None:
        connection.execute(sa.update(job).where(job.c.id == job_id).values(progress=found.progress))
        add_event(connection, "jobs", "changed", job=job_id, progress=found.progress)
    if found.text is not None:
        add_event(connection, f"job:{job_id}", "note", job=job_id, text=found.text)
    for text in found.acts:
        add_event(connection, f"job:{job_id}", "acted", job=job_id, text=text)
    return True


def _move(connection: sa.Connection, job_id: int, piece: TailedPiece) -> bool:
    values: dict[str, Any] = {
        "position": piece.after.total,
        "state": msgspec.json.encode(piece.after).decode(),
    }
    mine = (tail.c.job_id == job_id) & (tail.c.source == piece.source)
    moved = sa.update(tail).where(mine, tail.c.position == piece.before.total).values(values)
    if connection.execute(moved).rowcount:
        return True
    if piece.before.total:
        return False
    made = _insert_new(connection).values(job_id=job_id, source=piece.source, **values)
    return connection.scalar(made.returning(tail.c.source)) is not None


def _insert_new(connection: sa.Connection) -> Any:
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_postgres

        return insert_postgres(tail).on_conflict_do_nothing()
    from sqlalchemy.dialects.sqlite import insert as insert_sqlite

    return insert_sqlite(tail).on_conflict_do_nothing()
