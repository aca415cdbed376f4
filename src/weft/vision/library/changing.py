"""Changes of many files at once: copies, moves, removals, categories; and of labels and categories themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.geometry.validity import label_problem
from weft.vision.library.datasets import ClassKind, add_classes, class_names, colour_of, touch
from weft.vision.library.labelling import store_labels
from weft.vision.library.rows import NewFile, counted, decode_shapes, insert_files, new_id
from weft.vision.library.store import now_ms
from weft.vision.library.tables import fact, file, label, use


@dataclass(frozen=True)
class ClassEntry:
    """A label or a category in the wanted order: its name, its colour, and its name until now."""

    name: str
    colour: str | None = None
    was: str | None = None


def copy_files(connection: sa.Connection, rows: Sequence[Any], target_id: str, user: str) -> dict[str, str]:
    """Copy files with their labels into a data set; pictures are kept once. Return the new ids by the old ones.

    Frames whose film is copied too become frames of the copy; others become pictures.
    """
    ids = {row.id: new_id() for row in rows}
    names = [column.name for column in file.columns if column.name != "number"]
    for start in range(0, len(rows), 200):
        part = rows[start : start + 200]
        facts: dict[int, dict[str, str]] = {}
        given: dict[int, set[str]] = {}
        numbers = [row.number for row in part]
        for one in connection.execute(sa.select(fact).where(fact.c.file_number.in_(numbers))):
            facts.setdefault(one.file_number, {})[one.key] = one.text
            if one.given:
                given.setdefault(one.file_number, set()).add(one.key)
        fresh = []
        for row in part:
            values = {name: getattr(row, name) for name in names}
            values |= {
                "id": ids[row.id],
                "dataset_id": target_id,
                "origin": None,
                "revision": 0,
                "added_ms": now_ms(),
                "updated_by": user,
                "parent": ids.get(row.parent),
                "kind": "picture" if row.kind == "frame" and row.parent not in ids else row.kind,
            }
            fresh.append(
                NewFile(
                    row=values,
                    facts=facts.get(row.number, {}),
                    given=frozenset(given.get(row.number, ())),
                    labels=counted(decode_shapes(row.shapes)),
                )
            )
        insert_files(connection, fresh)
        add_classes(connection, target_id, "label", [name for one in fresh for name in one.labels])
        used = [row.category for row in part if row.category is not None]
        add_classes(connection, target_id, "category", used)
    touch(connection, target_id)
    return ids


def remove_files(connection: sa.Connection, rows: Sequence[Any]) -> int:
    """Remove files; frames of removed films go with them. Return how many went."""
    numbers = {row.number for row in rows}
    films = [row.id for row in rows if row.kind == "film"]
    if films:
        numbers |= set(connection.scalars(sa.select(file.c.number).where(file.c.parent.in_(films))))
    ordered = sorted(numbers)
    for start in range(0, len(ordered), 500):
        connection.execute(sa.delete(file).where(file.c.number.in_(ordered[start : start + 500])))
    for dataset_id in {row.dataset_id for row in rows}:
        touch(connection, dataset_id)
    return len(ordered)


def categorise(connection: sa.Connection, row: Any, category: str | None, user: str) -> bool:
    """Give a picture a category, or none; return whether that changes anything."""
    if row.kind == "film" or (row.category == category and row.category_confidence is None):
        return False
    if category is not None and (problem := label_problem(category)) is not None:
        raise PictureError(problem)
    store_labels(connection, row, decode_shapes(row.shapes), category, user=user)
    return True


def set_review(connection: sa.Connection, row: Any, review: str, user: str) -> bool:
    if row.review == review:
        return False
    values = {"review": review, "updated_ms": now_ms(), "updated_by": user}
    connection.execute(sa.update(file).where(file.c.number == row.number).values(values))
    touch(connection, row.dataset_id)
    return True


def set_classes(
    connection: sa.Connection, dataset_id: str, kind: ClassKind, wanted: Sequence[ClassEntry], user: str
) -> None:
    """Order, colour, rename, add and remove labels or categories; one that files have cannot be left out."""
    names = [entry.name for entry in wanted]
    if len(set(names)) != len(names):
        raise PictureError("names must be different from each other, got one twice; choose another")
    known = class_names(connection, dataset_id, kind)
    renamed = {entry.was: entry.name for entry in wanted if entry.was and entry.was != entry.name}
    unknown = [was for was in renamed if was not in known]
    if unknown:
        raise PictureError(
            f"a name until now must be one of {', '.join(known) or 'none'}, got {unknown[0]!r}"
        )
    for was in renamed:
        if renamed[was] in known and renamed[was] not in renamed:
            raise PictureError(f"{was!r} must get a new name, got {renamed[was]!r}, which is there already")
    kept = set(names) | set(renamed)
    for name in known:
        if name not in kept and _is_used(connection, dataset_id, kind, name):
            raise PictureError(f"{name!r} must stay while files have it; remove it from them first")
    if renamed:
        _rename(connection, dataset_id, kind, renamed, user)
    colours = {
        row.name: row.colour
        for row in connection.execute(
            sa.select(label).where(label.c.dataset_id == dataset_id, label.c.kind == kind)
        )
    }
    connection.execute(sa.delete(label).where(label.c.dataset_id == dataset_id, label.c.kind == kind))
    rows = []
    for place, entry in enumerate(wanted):
        problem = label_problem(entry.name)
        if problem is not None:
            raise PictureError(f"{problem}; choose another name")
        colour = entry.colour or colours.get(entry.was or entry.name) or colour_of(place)
        rows.append(
            {"dataset_id": dataset_id, "kind": kind, "name": entry.name, "colour": colour, "position": place}
        )
    if rows:
        connection.execute(sa.insert(label), rows)
    touch(connection, dataset_id)


def _is_used(connection: sa.Connection, dataset_id: str, kind: ClassKind, name: str) -> bool:
    if kind == "label":
        found = sa.select(use.c.label).where(use.c.dataset_id == dataset_id, use.c.label == name)
    else:
        found = sa.select(file.c.category).where(file.c.dataset_id == dataset_id, file.c.category == name)
    return connection.scalar(found.limit(1)) is not None


def _rename(
    connection: sa.Connection, dataset_id: str, kind: ClassKind, renamed: dict[str, str], user: str
) -> None:
    """Give the files of a data set new names for labels or categories; their revisions grow."""
    condition = file.c.category.in_(list(renamed))
    if kind == "label":
        numbers = sa.select(use.c.file_number).where(
            use.c.dataset_id == dataset_id, use.c.label.in_(list(renamed))
        )
        condition = file.c.number.in_(numbers)
    rows = connection.execute(sa.select(file).where(file.c.dataset_id == dataset_id, condition)).all()
    for row in rows:
        shapes = list(decode_shapes(row.shapes))
        category = row.category
        if kind == "label":
            shapes = [replace(shape, label=renamed.get(shape.label, shape.label)) for shape in shapes]
        elif category is not None:
            category = renamed.get(category, category)
        store_labels(
            connection, row, shapes, category, category_confidence=row.category_confidence, user=user
        )
