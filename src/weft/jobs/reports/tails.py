"""The positions of tailed files in the store, moved in the transaction that adds what was read.

A position moves only from where the reader believed it to be. So a piece of a file counts once, whenever a service is
killed, and even where two services read the same file for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa

from weft.jobs.metrics.batches import encode_batch
from weft.jobs.reports.gathered import Gathered, Position
from weft.jobs.store.events import add_event
from weft.jobs.store.metrics import TAILED, add_batches
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


@dataclass(frozen=True, slots=True)
class NewPieces:
    """Pieces of one job that are to be kept; those of many jobs are written at once.

    The answer has False for each piece that another service has added already.
    """

    job_id: int
    pieces: tuple[TailedPiece, ...]

    def __call__(self, connection: sa.Connection) -> list[bool]:
        return self.write_all(connection, [self])[0]

    @classmethod
    def write_all(cls, connection: sa.Connection, works: Sequence[NewPieces]) -> list[list[bool]]:
        """Keep the pieces of several jobs; nobody else writes meanwhile, so places are read and then moved."""
        places = _places(connection, {work.job_id for work in works})
        moves: dict[tuple[int, str], TailedPiece] = {}
        answers: list[list[bool]] = []
        added: list[tuple[int, TailedPiece]] = []
        for work in works:
            answers.append([])
            for piece in work.pieces:
                key = (work.job_id, piece.source)
                before = moves[key].after.total if key in moves else places.get(key, 0)
                answers[-1].append(before == piece.before.total)
                if answers[-1][-1]:
                    moves[key] = piece
                    added.append((work.job_id, piece))
        _move_all(connection, moves, set(places))
        _add_all(connection, added)
        return answers


def _places(connection: sa.Connection, jobs: set[int]) -> dict[tuple[int, str], int]:
    found = sa.select(tail.c.job_id, tail.c.source, tail.c.position).where(tail.c.job_id.in_(sorted(jobs)))
    return {(row.job_id, row.source): row.position for row in connection.execute(found)}


def _move_all(
    connection: sa.Connection, moves: dict[tuple[int, str], TailedPiece], known: set[tuple[int, str]]
) -> None:
    """Note up to where each source was read."""
    rows = [
        {"of": job_id, "named": source, "to": piece.after.total, "now": _text(piece.after)}
        for (job_id, source), piece in moves.items()
    ]
    old = [row for row in rows if (row["of"], row["named"]) in known]
    new = [row for row in rows if (row["of"], row["named"]) not in known]
    if old:
        connection.execute(_MOVE, old)
    if new:
        connection.execute(_PLACE, new)


def _add_all(connection: sa.Connection, added: list[tuple[int, TailedPiece]]) -> None:
    """Keep the points of pieces, and tell of what else they hold."""
    rows = [
        (job_id, TAILED + piece.source, piece.before.total, encode_batch(piece.found.points))
        for job_id, piece in added
        if piece.found.points
    ]
    if rows:
        add_batches(connection, rows)
    for job_id, piece in added:
        _tell(connection, job_id, piece.found)


def _tell(connection: sa.Connection, job_id: int, found: Gathered) -> None:
    if found.progress is not None:
        connection.execute(sa.update(job).where(job.c.id == job_id).values(progress=found.progress))
        add_event(connection, "jobs", "changed", job=job_id, progress=found.progress)
    if found.text is not None:
        add_event(connection, f"job:{job_id}", "note", job=job_id, text=found.text)
    for text in found.acts:
        add_event(connection, f"job:{job_id}", "acted", job=job_id, text=text)


def _text(position: Position) -> str:
    return msgspec.json.encode(position).decode()


_MOVE = (
    sa.update(tail)
    .where(tail.c.job_id == sa.bindparam("of"), tail.c.source == sa.bindparam("named"))
    .values(position=sa.bindparam("to"), state=sa.bindparam("now"))
)
_PLACE = sa.insert(tail).values(
    job_id=sa.bindparam("of"),
    source=sa.bindparam("named"),
    position=sa.bindparam("to"),
    state=sa.bindparam("now"),
)
