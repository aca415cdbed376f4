"""Rows of files: made of pictures and labels, and shown as views."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.vision.formats.documents import shape_document, shape_of
from weft.vision.library.store import now_ms
from weft.vision.library.tables import fact, file, use
from weft.vision.records import LabelledShape
from weft.vision.views import LabelState, ShapeView, VisionFile, VisionFileDetail

_LONGEST_FACT = 10_000  # characters
_SHAPES = msgspec.json.Decoder(tuple[ShapeView, ...])


def new_id() -> str:
    return secrets.token_hex(16)


def encode_shapes(shapes: Sequence[LabelledShape]) -> str:
    """Return shapes as a row keeps them; each gets an id that it keeps from now on."""
    documents = [shape_document(shape) for shape in shapes]
    seen: set[str] = set()
    for document in documents:
        if not document.get("id") or document["id"] in seen:
            document["id"] = secrets.token_hex(6)
        seen.add(document["id"])
    return msgspec.json.encode(documents).decode()


def decode_shapes(text: str) -> tuple[LabelledShape, ...]:
    return tuple(shape_of(document) for document in msgspec.json.decode(text)) if text != "[]" else ()


def label_fields(
    shapes: Sequence[LabelledShape], category: str | None, category_confidence: float | None
) -> dict[str, Any]:
    """Return those columns of a file that follow from its labels."""
    made = [shape.confidence for shape in shapes if shape.confidence is not None]
    if category is not None and category_confidence is not None:
        made.append(category_confidence)
    state: LabelState = "unlabelled"
    if shapes or category is not None:
        state = "auto" if made else "labelled"
    return {
        "shapes": encode_shapes(shapes),
        "category": category,
        "category_confidence": category_confidence if category is not None else None,
        "state": state,
        "confidence": min(made, default=None),
    }


def file_row(**given: Any) -> dict[str, Any]:
    """Return a row of the table of files, with what is the same for all new ones."""
    moment = now_ms()
    row: dict[str, Any] = dict.fromkeys(
        ("parent", "time_s", "duration_s", "frames_per_s", "likeness", "origin"), None
    )
    row |= {
        "id": new_id(),
        "review": "",
        "revision": 0,
        "added_ms": moment,
        "updated_ms": moment,
        "updated_by": "",
        **label_fields((), None, None),
    }
    return row | given


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to insert: its row, what is said of it, and the labels of its shapes."""

    row: dict[str, Any]
    facts: dict[str, str]
    given: frozenset[str] = frozenset()  # keys that users gave
    labels: dict[str, int]


def insert_files(connection: sa.Connection, files: Sequence[NewFile]) -> None:
    """Insert files with their labels and facts, in the transaction of the caller."""
    if not files:
        return
    connection.execute(sa.insert(file), [one.row for one in files])
    ids = [one.row["id"] for one in files]
    numbers: dict[str, int] = {}
    for start in range(0, len(ids), 500):
        found = sa.select(file.c.id, file.c.number).where(file.c.id.in_(ids[start : start + 500]))
        numbers.update({row.id: row.number for row in connection.execute(found)})
    facts = [row for one in files for row in fact_rows(numbers[one.row["id"]], one.facts, one.given)]
    uses = [
        {
            "file_number": numbers[one.row["id"]],
            "dataset_id": one.row["dataset_id"],
            "label": name,
            "count": count,
        }
        for one in files
        for name, count in one.labels.items()
    ]
    if facts:
        connection.execute(sa.insert(fact), facts)
    if uses:
        connection.execute(sa.insert(use), uses)


def fact_rows(number: int, facts: Mapping[str, str], given: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of a file's metadata."""
    rows = []
    for key, text in facts.items():
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        rows.append(
            {
                "file_number": number,
                "key": key[:100],
                "text": text[:_LONGEST_FACT],
                "value": value if math.isfinite(value) else None,
                "given": key in set(given),
            }
        )
    return rows


def counted(shapes: Iterable[LabelledShape]) -> dict[str, int]:
    return dict(Counter(shape.label for shape in shapes))


def file_fields(row: Any, labels: Mapping[str, int], frames: int) -> dict[str, Any]:
    """Return the fields of a view of a file."""
    return {
        "id": row.id,
        "dataset": row.dataset_id,
        "name": row.name,
        "kind": row.kind,
        "width": row.width,
        "height": row.height,
        "bytes": row.bytes,
        "sha256": row.sha256,
        "state": row.state,
        "review": row.review,
        "category": row.category,
        "category_confidence": row.category_confidence,
        "labels": dict(labels),
        "confidence": row.confidence,
        "revision": row.revision,
        "split": row.split,
        "parent": row.parent,
        "time_s": row.time_s,
        "duration_s": row.duration_s,
        "frames_per_s": row.frames_per_s,
        "frames": frames,
        "added_ms": row.added_ms,
        "updated_ms": row.updated_ms,
    }


def views_of(connection: sa.Connection, rows: Sequence[Any]) -> tuple[VisionFile, ...]:
    """Return rows of files as views, with the labels that they have."""
    numbers = [row.number for row in rows]
    labels: dict[int, dict[str, int]] = {}
    frames: dict[str, int] = {}
    for start in range(0, len(numbers), 500):
        part = numbers[start : start + 500]
        for one in connection.execute(
            sa.select(use).where(use.c.file_number.in_(part)).order_by(use.c.label)
        ):
            labels.setdefault(one.file_number, {})[one.label] = one[2]
    films = [row.id for row in rows if row.kind == "film"]
    if films:
        found = (
            sa.select(file.c.parent, sa.func.count()).where(file.c.parent.in_(films)).group_by(file.c.parent)
        )
        frames = {row[0]: row[1] for row in connection.execute(found)}
    return tuple(
        VisionFile(**file_fields(row, labels.get(row.number, {}), frames.get(row.id, 0))) for row in rows
    )


def detail_of(connection: sa.Connection, row: Any) -> VisionFileDetail:
    """Return one file with its labels, its metadata and its neighbours."""
    (view,) = views_of(connection, [row])
    facts = sa.select(fact.c.key, fact.c.text).where(fact.c.file_number == row.number).order_by(fact.c.key)
    siblings = sa.select(file.c.id).where(file.c.dataset_id == row.dataset_id, file.c.kind != "film")
    before = siblings.where(file.c.number < row.number).order_by(file.c.number.desc()).limit(1)
    after = siblings.where(file.c.number > row.number).order_by(file.c.number).limit(1)
    fields = {name: getattr(view, name) for name in VisionFile.__struct_fields__}
    return VisionFileDetail(
        **fields,
        shapes=_SHAPES.decode(row.shapes),
        metadata={row[0]: row[1] for row in connection.execute(facts)},
        previous=connection.scalar(before),
        next=connection.scalar(after),
        updated_by=row.updated_by,
    )


def details_of(connection: sa.Connection, rows: Sequence[Any]) -> tuple[VisionFileDetail, ...]:
    """Return many files with their labels and metadata, but without their neighbours."""
    facts: dict[int, dict[str, str]] = {}
    for start in range(0, len(rows), 500):
        numbers = [row.number for row in rows[start : start + 500]]
        found = sa.select(fact.c.file_number, fact.c.key, fact.c.text).where(fact.c.file_number.in_(numbers))
        for number, key, text in connection.execute(found.order_by(fact.c.key)):
            facts.setdefault(number, {})[key] = text
    return tuple(
        VisionFileDetail(
            **{name: getattr(view, name) for name in VisionFile.__struct_fields__},
            shapes=_SHAPES.decode(row.shapes),
            metadata=facts.get(row.number, {}),
            previous=None,
            next=None,
            updated_by=row.updated_by,
        )
        for view, row in zip(views_of(connection, rows), rows, strict=True)
    )


def shape_of_view(view: ShapeView) -> LabelledShape:
    """Return the shape that a view describes."""
    return shape_of(msgspec.to_builtins(view))
