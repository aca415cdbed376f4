"""Actions in films: what happens from a moment to another, as people mark it, or a model finds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.geometry.validity import label_problem
from weft.vision.library.datasets import touch
from weft.vision.library.rows import new_id
from weft.vision.library.store import now_ms
from weft.vision.library.tables import action, file
from weft.vision.refusals import PicturesNotFoundError


@dataclass(frozen=True, kw_only=True)
class FilmAction:
    """One action in a film."""

    id: str
    dataset: str
    film: str  # the id of its file
    label: str
    start_s: float
    end_s: float
    confidence: float | None = None  # of the model that made it; none: a person did
    model: str | None = None
    created_ms: int = 0


def list_actions(connection: sa.Connection, dataset_id: str, film: str | None = None) -> list[FilmAction]:
    """Return the actions of a data set, or of one of its films, in the order of films and times."""
    wanted = (
        sa.select(action, file.c.id.label("film"))
        .join(file, file.c.number == action.c.file_number)
        .where(action.c.dataset_id == dataset_id)
        .order_by(action.c.file_number, action.c.start_s, action.c.id)
    )
    if film is not None:
        wanted = wanted.where(file.c.id == film)
    return [
        FilmAction(
            id=row.id,
            dataset=row.dataset_id,
            film=row.film,
            label=row.label,
            start_s=row.start_s,
            end_s=row.end_s,
            confidence=row.confidence,
            model=row.model,
            created_ms=row.created_ms,
        )
        for row in connection.execute(wanted)
    ]


def save_action(
    connection: sa.Connection,
    film: Any,
    label: str,
    start_s: float,
    end_s: float,
    *,
    confidence: float | None = None,
    model: str | None = None,
    identity: str | None = None,
) -> str:
    """Add an action to a film, the row of its file, or change the one of an id; return the id."""
    if film.kind != "film":
        raise PictureError(f"an action must be in a film, got {film.name}, a {film.kind}")
    if problem := label_problem(label):
        raise PictureError(f"{problem}; choose another name")
    longest = film.duration_s or math.inf
    if not (math.isfinite(start_s) and math.isfinite(end_s) and 0 <= start_s < end_s):
        raise PictureError(
            f"an action must begin before it ends, got {start_s:g} to {end_s:g} s; give seconds of the film"
        )
    if start_s >= longest:
        raise PictureError(f"an action must be within its film of {longest:g} s, got one from {start_s:g} s")
    values = {
        "label": label,
        "start_s": float(start_s),
        "end_s": float(min(end_s, longest)),
        "confidence": confidence,
        "model": model,
    }
    if identity is None:
        identity = new_id()
        row = {"id": identity, "dataset_id": film.dataset_id, "file_number": film.number}
        connection.execute(sa.insert(action), {**row, **values, "created_ms": now_ms()})
    else:
        connection.execute(sa.update(action).where(action.c.id == identity).values(**values))
    touch(connection, film.dataset_id)
    return identity


def remove_actions(connection: sa.Connection, dataset_id: str, ids: Sequence[str]) -> int:
    """Remove actions of a data set; return how many there were."""
    gone = sa.delete(action).where(action.c.dataset_id == dataset_id, action.c.id.in_(list(ids)))
    count = connection.execute(gone).rowcount
    if count:
        touch(connection, dataset_id)
    return int(count)


def find_action(connection: sa.Connection, dataset_id: str, identity: str) -> FilmAction:
    """Return an action by its id."""
    for one in list_actions(connection, dataset_id):
        if one.id == identity:
            return one
    raise PicturesNotFoundError(f"an action must be there, got {identity[:80]!r}; list them to see their ids")
