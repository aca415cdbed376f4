"""Files of a data set: found, filtered, sorted and paged, however many there are."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.library.datasets import find_dataset
from weft.vision.library.queries import condition_of, parse_query
from weft.vision.library.rows import views_of
from weft.vision.library.tables import file, use
from weft.vision.refusals import PicturesNotFoundError
from weft.vision.views import VisionFiles

SORTS = {
    "added": file.c.number,
    "name": file.c.name,
    "confidence": sa.func.coalesce(file.c.confidence, 2.0),  # what no model made comes last
    "updated": file.c.updated_ms,
}


@dataclass(frozen=True, kw_only=True)
class FileFilter:
    """A choice of files of a data set, and their order."""

    state: str = "all"  # all, unlabelled, labelled, auto, review
    label: str | None = None
    category: str | None = None
    kind: str | None = None
    parent: str | None = None
    query: str = ""
    sort: str = "added"  # or name, confidence, updated; with - before it, backwards

    def conditions(self, dataset_id: str) -> list[sa.ColumnElement[bool]]:
        """Return the conditions on rows of files."""
        found: list[sa.ColumnElement[bool]] = [file.c.dataset_id == dataset_id]
        if self.state == "review":
            found.append(file.c.review == "review")
        elif self.state != "all":
            found += [file.c.state == self.state, file.c.kind != "film"]
        if self.label is not None:
            has = sa.select(use.c.file_number).where(
                use.c.dataset_id == dataset_id, use.c.label == self.label
            )
            found.append(file.c.number.in_(has))
        same = ((file.c.category, self.category), (file.c.kind, self.kind), (file.c.parent, self.parent))
        found += [column == wanted for column, wanted in same if wanted is not None]
        asked = parse_query(self.query)
        if asked is not None:
            found.append(condition_of(asked))
        return found


def list_files(
    connection: sa.Connection,
    dataset_id: str,
    wanted: FileFilter,
    after: str | None = None,
    limit: int = 100,
) -> VisionFiles:
    """Return one page of files; `after` is the `next` of the page before."""
    conditions = wanted.conditions(dataset_id)
    total = connection.scalar(sa.select(sa.func.count()).select_from(file).where(*conditions)) or 0
    backwards = wanted.sort.startswith("-")
    name = wanted.sort.removeprefix("-")
    if name not in SORTS:
        raise PictureError(f"files must be sorted by {', '.join(SORTS)}, got {wanted.sort!r}")
    column = SORTS[name]
    if after is not None:
        value, number = _cursor(after)
        key, place = sa.tuple_(column, file.c.number), sa.tuple_(sa.literal(value), sa.literal(number))
        conditions.append(key < place if backwards else key > place)
    order = [column, file.c.number] if name != "added" else [file.c.number]
    page = sa.select(file, column.label("sorted_by")).where(*conditions).limit(limit + 1)
    rows = connection.execute(page.order_by(*(one.desc() if backwards else one for one in order))).all()
    following = None
    if len(rows) > limit:
        rows = rows[:limit]
        following = _encoded(rows[-1].sorted_by, rows[-1].number)
    return VisionFiles(files=views_of(connection, rows), total=total, next=following)


def _encoded(value: Any, number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, number]).encode()).decode().rstrip("=")


def _cursor(text: str) -> tuple[Any, int]:
    try:
        value, number = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not isinstance(value, (str, int, float)) or not isinstance(number, int):
            raise ValueError("other types")
    except (ValueError, TypeError, binascii.Error):
        raise PictureError(
            "after must be the `next` of the page before, got another text; leave it out"
        ) from None
    return value, number


def find_file(connection: sa.Connection, file_id: str, user: str | None) -> Any:
    """Return the row of a file, if a user may see its data set."""
    row = connection.execute(sa.select(file).where(file.c.id == file_id)).one_or_none()
    if row is None:
        raise PicturesNotFoundError(f"the file {file_id[:80]!r} must exist, got none that you may see")
    try:
        find_dataset(connection, row.dataset_id, user)
    except PicturesNotFoundError:
        raise PicturesNotFoundError(
            f"the file {file_id[:80]!r} must exist, got none that you may see"
        ) from None
    return row


def wanted_files(
    connection: sa.Connection, dataset_id: str, ids: tuple[str, ...], wanted: FileFilter | None
) -> list[Any]:
    """Return the rows of those files of a data set that are named, or that a filter lets through."""
    if wanted is not None:
        found = sa.select(file).where(*wanted.conditions(dataset_id)).order_by(file.c.number)
        return list(connection.execute(found))
    rows: list[Any] = []
    for start in range(0, len(ids), 500):
        part = sa.select(file).where(file.c.dataset_id == dataset_id, file.c.id.in_(ids[start : start + 500]))
        rows += connection.execute(part.order_by(file.c.number)).all()
    return rows
