"""Documents of records: shapes and pictures as plain mappings, with nothing in them that has its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import PictureError
from weft.vision.geometry.masks import pack_counts, unpack_counts
from weft.vision.records import Box, LabelledPicture, LabelledShape, RunLengths

SHAPE_EXTRAS = ("confidence", "model", "track", "id")  # fields that most formats have no words for


def shape_document(shape: LabelledShape) -> dict[str, Any]:
    """Return a shape as a mapping."""
    found: dict[str, Any] = {"label": shape.label, "box": list(shape.box)}
    if shape.polygons:
        found["polygons"] = [[[x, y] for x, y in ring] for ring in shape.polygons]
    if shape.mask is not None:
        found["mask"] = mask_document(shape.mask)
    return found | shape_extras(shape)


def shape_extras(shape: LabelledShape) -> dict[str, Any]:
    """Return those fields of a shape that say who made it."""
    extras = {name: getattr(shape, name) for name in SHAPE_EXTRAS}
    return {name: value for name, value in extras.items() if value not in (None, "")}


def mask_document(mask: RunLengths) -> dict[str, Any]:
    return {"size": [mask.height, mask.width], "counts": pack_counts(mask.counts)}


def mask_of(document: Any) -> RunLengths:
    """Return a mask from COCO's mapping: counts as numbers or as text."""
    try:
        height, width = (int(number) for number in document["size"])
        counts = document["counts"]
        numbers = unpack_counts(counts) if isinstance(counts, str) else tuple(int(count) for count in counts)
    except (KeyError, TypeError, ValueError) as error:
        raise PictureError(f"a mask must have a size and counts: {error}") from None
    return RunLengths(width, height, numbers)


def box_of(numbers: Any) -> Box:
    """Return four numbers as a box."""
    try:
        left, top, right, bottom = (float(number) for number in numbers)
    except (TypeError, ValueError):
        raise PictureError(f"a box must have four numbers, got {str(numbers)[:60]}") from None
    return (left, top, right, bottom)


def shape_of(document: Mapping[str, Any]) -> LabelledShape:
    """Return the shape that a mapping describes."""
    try:
        return LabelledShape(
            label=str(document["label"]),
            box=box_of(document["box"]),
            polygons=tuple(
                tuple((float(x), float(y)) for x, y in ring) for ring in document.get("polygons", ())
            ),
            mask=mask_of(document["mask"]) if document.get("mask") else None,
            **extras_of(document),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PictureError(f"a shape must have a label and a box: {error}") from None


def extras_of(document: Any) -> dict[str, Any]:
    """Return the fields of a shape that say who made it, with the right types."""
    if not isinstance(document, Mapping):
        return {}
    found: dict[str, Any] = {}
    if isinstance(document.get("confidence"), (int, float)):
        found["confidence"] = float(document["confidence"])
    for name in ("model", "track", "id"):
        if isinstance(document.get(name), str):
            found[name] = document[name]
    return found


def picture_document(picture: LabelledPicture, written_name: str) -> dict[str, Any]:
    """Return those fields of a picture that formats have no words for."""
    found: dict[str, Any] = {"id": picture.id}
    if picture.name != written_name:
        found["name"] = picture.name
    for name in ("category", "category_confidence", "film", "time_s"):
        if getattr(picture, name) is not None:
            found[name] = getattr(picture, name)
    if picture.metadata:
        found["metadata"] = dict(picture.metadata)
    return found


def picture_fields(document: Any) -> dict[str, Any]:
    """Return the fields of a found picture that such a mapping tells, with the right types."""
    if not isinstance(document, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name in ("id", "name", "category", "film"):
        if isinstance(document.get(name), str):
            found[name] = document[name]
    for name in ("category_confidence", "time_s"):
        if isinstance(document.get(name), (int, float)):
            found[name] = float(document[name])
    if isinstance(document.get("metadata"), Mapping):
        found["metadata"] = {str(key): str(value) for key, value in document["metadata"].items()}
    return found
