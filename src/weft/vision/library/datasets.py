"""Data sets of a library: who may see them, their names, labels, colours and counts."""

from __future__ import annotations

import colorsys
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.geometry.validity import label_problem
from weft.vision.library.rows import new_id
from weft.vision.library.store import now_ms
from weft.vision.library.tables import dataset, file, label, use, version
from weft.vision.refusals import PicturesConflictError, PicturesForbiddenError, PicturesNotFoundError
from weft.vision.views import DatasetCounts, LabelView, VisionDataset

EVERYBODY = "*"
_GOLDEN = 0.618033988749895  # steps of hue that keep neighbours apart
ClassKind = Literal["label", "category"]


def create_dataset(connection: sa.Connection, name: str, owner: str, description: str = "") -> str:
    """Make a data set; return its id."""
    check_name(connection, name, owner)
    identity, moment = new_id(), now_ms()
    row = {
        "id": identity,
        "name": name,
        "owner": owner,
        "description": description,
        "shares": "[]",
        "next_version": 1,
        "created_ms": moment,
        "updated_ms": moment,
    }
    connection.execute(sa.insert(dataset), row)
    return identity


def check_name(connection: sa.Connection, name: str, owner: str, apart_from: str = "") -> None:
    """Refuse a name that cannot be used, or that another data set of the same owner has."""
    problem = label_problem(name)
    if problem is None and any(letter in name for letter in "@/\\"):
        problem = f"the name of a data set must have no @, / or \\, got {name!r}"
    if problem is not None:
        raise PictureError(f"{problem}; choose another name")
    taken = sa.select(dataset.c.id).where(dataset.c.name == name, dataset.c.owner == owner)
    if connection.scalar(taken.where(dataset.c.id != apart_from)) is not None:
        raise PicturesConflictError(
            f"the name of a data set must be new, got {name!r}, which is taken; choose another"
        )


def find_dataset(connection: sa.Connection, reference: str, user: str | None, *, own: bool = False) -> Any:
    """Return the row of a data set by id or by name, if a user may see it; `own`: if it is theirs.

    A user of None is whoever has the folder, or an administrator: they see everything.
    """
    rows = connection.execute(
        sa.select(dataset).where(sa.or_(dataset.c.id == reference, dataset.c.name == reference))
    ).all()
    seen = [row for row in rows if may_see(row, user)]
    if not seen:
        raise PicturesNotFoundError(
            f"the data set {reference[:80]!r} must exist, got none that you may see; list them to see their names"
        )
    row = min(seen, key=lambda row: (row.id != reference, row.owner != user))
    if own and user is not None and row.owner != user:
        raise PicturesForbiddenError(
            f"{row.name} must be your own for this, got one of {row.owner}; clone it"
        )
    return row


def may_see(row: Any, user: str | None) -> bool:
    if user is None or row.owner == user:
        return True
    shares = json.loads(row.shares)
    return user in shares or EVERYBODY in shares


def touch(connection: sa.Connection, dataset_id: str) -> None:
    """Note that a data set has changed."""
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(updated_ms=now_ms()))


def dataset_views(
    connection: sa.Connection, rows: Sequence[Any], user: str | None
) -> tuple[VisionDataset, ...]:
    """Return data sets with their counts."""
    ids = [row.id for row in rows]
    counts = _counts(connection, ids)
    covers = _covers(connection, ids)
    newest = dict(
        connection.execute(
            sa.select(version.c.dataset_id, sa.func.max(version.c.number))
            .where(version.c.dataset_id.in_(ids))
            .group_by(version.c.dataset_id)
        ).all()
    )
    return tuple(
        VisionDataset(
            id=row.id,
            name=row.name,
            description=row.description,
            owner=row.owner,
            mine=user is None or row.owner == user,
            shares=tuple(json.loads(row.shares)),
            counts=counts.get(row.id, DatasetCounts()),
            labels=class_views(connection, row.id, "label"),
            categories=class_views(connection, row.id, "category"),
            cover=row.cover or covers.get(row.id),
            created_ms=row.created_ms,
            updated_ms=row.updated_ms,
            newest_version=newest.get(row.id, 0),
        )
        for row in rows
    )


def _counts(connection: sa.Connection, ids: Sequence[str]) -> dict[str, DatasetCounts]:
    grouped = (
        sa.select(file.c.dataset_id, file.c.kind, file.c.state, file.c.review, sa.func.count().label("files"))
        .where(file.c.dataset_id.in_(ids))
        .group_by(file.c.dataset_id, file.c.kind, file.c.state, file.c.review)
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(grouped):
        one = found.setdefault(row.dataset_id, dict.fromkeys(DatasetCounts.__struct_fields__, 0))
        if row.kind == "film":
            one["films"] += row.files
            continue
        one["pictures"] += row.files
        one[row.state] += row.files
        if row.review == "review":
            one["review"] += row.files
    return {identity: DatasetCounts(**one) for identity, one in found.items()}


def _covers(connection: sa.Connection, ids: Sequence[str]) -> dict[str, str]:
    first = (
        sa.select(file.c.dataset_id, sa.func.min(file.c.number).label("number"))
        .where(file.c.dataset_id.in_(ids), file.c.kind != "film")
        .group_by(file.c.dataset_id)
        .subquery()
    )
    found = sa.select(file.c.dataset_id, file.c.id).join(first, file.c.number == first.c.number)
    return {row.dataset_id: row.id for row in connection.execute(found)}


# -- labels and categories
# --------------------------------------------------------------------------------------------


def class_views(connection: sa.Connection, dataset_id: str, kind: ClassKind) -> tuple[LabelView, ...]:
    """Return the labels or categories of a data set in their order, with the number of pictures that have them."""
    if kind == "label":
        counted = (
            sa.select(use.c.label, sa.func.count())
            .where(use.c.dataset_id == dataset_id)
            .group_by(use.c.label)
        )
    else:
        counted = (
            sa.select(file.c.category, sa.func.count())
            .where(file.c.dataset_id == dataset_id, file.c.category.is_not(None))
            .group_by(file.c.category)
        )
    pictures: dict[str, int] = {row[0]: row[1] for row in connection.execute(counted)}
    rows = connection.execute(
        sa.select(label)
        .where(label.c.dataset_id == dataset_id, label.c.kind == kind)
        .order_by(label.c.position, label.c.name)
    )
    return tuple(
        LabelView(name=row.name, colour=row.colour, pictures=pictures.get(row.name, 0)) for row in rows
    )


def class_names(connection: sa.Connection, dataset_id: str, kind: ClassKind) -> tuple[str, ...]:
    found = sa.select(label.c.name).where(label.c.dataset_id == dataset_id, label.c.kind == kind)
    return tuple(connection.scalars(found.order_by(label.c.position, label.c.name)))


def add_classes(connection: sa.Connection, dataset_id: str, kind: ClassKind, names: Iterable[str]) -> None:
    """Add labels or categories that a data set does not have yet, at the end of their order."""
    known = class_names(connection, dataset_id, kind)
    fresh = [name for name in dict.fromkeys(names) if name not in known]
    for name in fresh:
        problem = label_problem(name)
        if problem is not None:
            raise PictureError(f"{problem}; choose another name")
    rows = [
        {
            "dataset_id": dataset_id,
            "kind": kind,
            "name": name,
            "colour": colour_of(place),
            "position": place,
        }
        for place, name in enumerate(fresh, len(known))
    ]
    if rows:
        connection.execute(sa.insert(label), rows)


def colour_of(place: int) -> str:
    """Return the colour of the n-th label: bright, and far from those of its neighbours."""
    hue = (0.58 + place * _GOLDEN) % 1.0
    red, green, blue = colorsys.hls_to_rgb(hue, 0.52, 0.78)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
