"""Create ML: a list of pictures in JSON, each with boxes by their middle, width and height in pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.vision.formats.plain.naming import UNREADABLE, PictureLabels
from weft.vision.records import LabelledShape


def picture_labels(document: Any) -> Sequence[PictureLabels] | None:
    """Return what a file of Create ML says; None for another file."""
    if not isinstance(document, list) or not document or not all(_is_picture(one) for one in document):
        return None
    return [_labels(one) for one in document]


def _is_picture(one: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(_name(one), str) and isinstance(_boxes(one), list)


def _name(one: Mapping[str, Any]) -> Any:
    return one.get("image") or one.get("imagefilename") or one.get("imageFilename")


def _boxes(one: Mapping[str, Any]) -> Any:
    return one.get("annotations", one.get("annotation"))


def _labels(one: Mapping[str, Any]) -> PictureLabels:
    shapes, problems = [], []
    for given in _boxes(one):
        try:
            shapes.append(_shape(given))
        except UNREADABLE as error:
            problems.append(f"a box must have a label and coordinates, got {str(given)[:60]} ({error!r:.60})")
    return PictureLabels(name=_name(one), shapes=tuple(shapes), problems=tuple(problems))


def _shape(given: Mapping[str, Any]) -> LabelledShape:
    place = given["coordinates"]
    x, y, width, height = (float(place[key]) for key in ("x", "y", "width", "height"))
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return LabelledShape(label=str(given["label"]), box=box)
