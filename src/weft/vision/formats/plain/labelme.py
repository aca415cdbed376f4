"""LabelMe: a JSON file beside each picture, with the points of its shapes in pixels."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.vision.formats.found import FoundPicture, FoundSet, in_order, pictures_below, split_of, text_of
from weft.vision.formats.plain.naming import UNREADABLE
from weft.vision.formats.plain.outlines import ellipse
from weft.vision.geometry.boxes import union_box
from weft.vision.records import LabelledShape


def read_labelme(folder: Path) -> FoundSet | None:
    """Return the pictures below a folder with the shapes of the files beside them; None where there is no such file."""
    pictures = list(pictures_below(folder))
    read = {path: _document(path.with_suffix(".json")) for path in pictures}
    documents = {path: document for path, document in read.items() if document is not None}
    if not documents:
        return None
    problems: list[str] = []
    found = tuple(
        _picture(_plain(path, folder), documents[path], problems)
        if path in documents
        else _plain(path, folder)
        for path in pictures
    )
    labels = {shape.label for one in found for shape in one.shapes}
    return FoundSet(
        name=folder.name,
        format="labelme",
        pictures=found,
        labels=in_order((), labels),
        problems=tuple(problems),
    )


def _plain(path: Path, folder: Path) -> FoundPicture:
    return FoundPicture(name=path.name, path=path, split=split_of(path.relative_to(folder).parent))


def _document(path: Path) -> dict[str, Any] | None:
    """Return a file of LabelMe; None for another one."""
    if not path.is_file():
        return None
    try:
        document = json.loads(text_of(path))
    except (PictureError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "imagePath" not in document:
        return None
    return document if isinstance(document.get("shapes"), list) else None


def _picture(picture: FoundPicture, document: Mapping[str, Any], problems: list[str]) -> FoundPicture:
    shapes = []
    for given in document["shapes"]:
        try:
            shapes.append(_shape(given))
        except UNREADABLE as error:
            problems.append(f"{picture.path.stem}.json: a shape was left out: {error}")
    width, height = document.get("imageWidth"), document.get("imageHeight")
    size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
    return replace(picture, shapes=tuple(shapes), size=size)


def _shape(given: Mapping[str, Any]) -> LabelledShape:
    label, kind = str(given["label"]), given.get("shape_type") or "polygon"
    points = [(float(x), float(y)) for x, y in given["points"]]
    if kind == "circle" and len(points) == 2:
        radius = math.dist(*points)
        points = list(ellipse(*points[0], radius, radius))
    elif kind not in ("polygon", "rectangle") or len(points) < (2 if kind == "rectangle" else 3):
        raise PictureError(
            f"shapes must be polygons, rectangles or circles, got {kind} of {len(points)} points"
        )
    box = union_box(points)
    return LabelledShape(label=label, box=box, polygons=() if kind == "rectangle" else (tuple(points),))
