"""Labelling: the labels of a file are saved as a whole, over the revision that they were made from.

So nobody overwrites what another has saved meanwhile.

Labels that a model made have a confidence. To accept one is to take its confidence away: it is a person's from
then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.geometry.boxes import box_iou
from weft.vision.geometry.tracks import interpolate_track
from weft.vision.geometry.validity import label_problem, shape_problem
from weft.vision.library.datasets import add_classes, touch
from weft.vision.library.rows import counted, decode_shapes, detail_of, fact_rows, label_fields
from weft.vision.library.store import now_ms
from weft.vision.library.tables import fact, file, opinion, use
from weft.vision.records import LabelledShape
from weft.vision.refusals import LabelsChangedError

MOST_SHAPES = 20_000  # of one picture


def save_labels(
    connection: sa.Connection,
    row: Any,
    revision: int,
    shapes: Sequence[LabelledShape],
    category: str | None,
    *,
    category_confidence: float | None = None,
    review: str | None = None,
    user: str = "",
) -> None:
    """Save the labels of a file; LabelsChangedError where its revision is another one by now."""
    if row.kind == "film" and shapes:
        raise PictureError(
            "shapes must be drawn on the frames of a film, got some for the film; capture frames"
        )
    if row.revision != revision:
        raise LabelsChangedError(detail_of(connection, row))
    if len(shapes) > MOST_SHAPES:
        raise PictureError(f"a picture must have at most {MOST_SHAPES} shapes, got {len(shapes)}")
    for shape in shapes:
        problem = shape_problem(shape, row.width, row.height)
        if problem is not None:
            raise PictureError(problem)
    if category is not None and (problem := label_problem(category)) is not None:
        raise PictureError(problem)
    store_labels(
        connection,
        row,
        shapes,
        category,
        category_confidence=category_confidence,
        review=review,
        user=user,
    )


def store_labels(
    connection: sa.Connection,
    row: Any,
    shapes: Sequence[LabelledShape],
    category: str | None,
    *,
    category_confidence: float | None = None,
    review: str | None = None,
    user: str = "",
) -> None:
    """Write checked labels over those that a row has; fails if it was changed since the row was read."""
    values = label_fields(shapes, category, category_confidence)
    values |= {"revision": row.revision + 1, "updated_ms": now_ms(), "updated_by": user}
    if review is not None:
        values["review"] = review
    same = sa.and_(file.c.number == row.number, file.c.revision == row.revision)
    done = connection.execute(sa.update(file).where(same).values(values))
    if done.rowcount != 1:
        fresh = connection.execute(sa.select(file).where(file.c.number == row.number)).one()
        raise LabelsChangedError(detail_of(connection, fresh))
    labels = counted(shapes)
    add_classes(connection, row.dataset_id, "label", labels)
    if category is not None:
        add_classes(connection, row.dataset_id, "category", [category])
    connection.execute(sa.delete(use).where(use.c.file_number == row.number))
    rows = [
        {"file_number": row.number, "dataset_id": row.dataset_id, "label": name, "count": count}
        for name, count in labels.items()
    ]
    if rows:
        connection.execute(sa.insert(use), rows)
    touch(connection, row.dataset_id)


def save_metadata(connection: sa.Connection, row: Any, metadata: Mapping[str, str]) -> None:
    """Give a file keys and values; an empty value removes its key."""
    for key in metadata:
        if (
            label_problem(key) is not None
            or not key.replace("_", "a").replace("-", "a").replace(".", "a").isalnum()
        ):
            raise PictureError(
                f"a key must have letters, digits, - _ and . alone, got {key[:80]!r}; choose another"
            )
    keys = list(metadata)
    connection.execute(sa.delete(fact).where(fact.c.file_number == row.number, fact.c.key.in_(keys)))
    rows = fact_rows(row.number, {key: text for key, text in metadata.items() if text}, keys)
    if rows:
        connection.execute(sa.insert(fact), rows)
    connection.execute(sa.update(file).where(file.c.number == row.number).values(updated_ms=now_ms()))
    touch(connection, row.dataset_id)


def accept(connection: sa.Connection, row: Any, confidence: float, user: str) -> bool:
    """Make what a model is at least so sure of a person's; return whether there was something."""
    shapes = [
        replace(shape, confidence=None)
        if shape.confidence is not None and shape.confidence >= confidence
        else shape
        for shape in decode_shapes(row.shapes)
    ]
    sure = row.category_confidence is not None and row.category_confidence >= confidence
    rest = None if sure else row.category_confidence
    if tuple(shapes) == decode_shapes(row.shapes) and rest == row.category_confidence:
        return False
    store_labels(connection, row, shapes, row.category, category_confidence=rest, user=user)
    return True


def reject(connection: sa.Connection, row: Any, confidence: float, user: str) -> bool:
    """Remove what a model is less sure of than so; return whether there was something."""

    def bad(value: float | None) -> bool:
        return value is not None and (value < confidence or confidence == 0)

    before = decode_shapes(row.shapes)
    shapes = [shape for shape in before if not bad(shape.confidence)]
    category = None if bad(row.category_confidence) else row.category
    if len(shapes) == len(before) and category == row.category:
        return False
    rest = row.category_confidence if category is not None else None
    store_labels(connection, row, shapes, category, category_confidence=rest, user=user)
    return True


def fill_track(connection: sa.Connection, film_id: str, track: str, user: str) -> int:
    """Put the boxes of a track into the frames between those where a person drew it; return how many were put."""
    rows = connection.execute(
        sa.select(file).where(file.c.parent == film_id, file.c.time_s.is_not(None)).order_by(file.c.time_s)
    ).all()
    shapes = {row.time_s: decode_shapes(row.shapes) for row in rows}
    drawn = {
        time: shape
        for time, found in shapes.items()
        for shape in found
        if shape.track == track and shape.model != "interpolation"
    }
    if len(drawn) < 2:
        raise PictureError(
            f"the track {track!r} must be drawn in two frames or more, got {len(drawn)}; draw it"
        )
    between = interpolate_track(drawn, [row.time_s for row in rows if row.time_s not in drawn])
    for row in rows:
        if row.time_s in between:
            made = replace(between[row.time_s], model="interpolation", confidence=None)
            others = [shape for shape in shapes[row.time_s] if shape.track != track]
            store_labels(
                connection,
                row,
                [*others, made],
                row.category,
                category_confidence=row.category_confidence,
                user=user,
            )
    return len(between)


# -- doubts
# -----------------------------------------------------------------------------------------------------------


def doubt_about(shapes: Sequence[LabelledShape], predicted: Sequence[LabelledShape]) -> tuple[float, str]:
    """Return how much a model disagrees with labels, 0 to 1, and the strongest point in words.

    Each prediction counts by its confidence. One that overlaps a label of another name by a half or more doubts that
    name; one that overlaps none doubts that all objects are labelled; a label that nothing overlaps is doubted by
    0.5.
    """
    doubts: list[tuple[float, str]] = []
    met = set()
    for one in predicted:
        sure = one.confidence if one.confidence is not None else 1.0
        best = max(range(len(shapes)), key=lambda place: box_iou(shapes[place].box, one.box), default=None)
        if best is None or box_iou(shapes[best].box, one.box) < 0.5:
            doubts.append((0.8 * sure, f"{one.label} is not labelled ({sure:.2f})"))
            continue
        met.add(best)
        if shapes[best].label != one.label:
            doubts.append((sure, f"{shapes[best].label} looks like {one.label} ({sure:.2f})"))
    doubts += [(0.5, f"no {shape.label} is seen") for place, shape in enumerate(shapes) if place not in met]
    return max(doubts, default=(0.0, ""))


def store_doubt(connection: sa.Connection, row: Any, model: str, doubt: float, text: str) -> None:
    """Keep what a model doubts about a file, in place of what it doubted before."""
    connection.execute(sa.delete(opinion).where(opinion.c.file_number == row.number))
    values = {
        "file_number": row.number,
        "model": model,
        "doubt": doubt,
        "text": text,
        "revision": row.revision,
    }
    connection.execute(sa.insert(opinion), values)
