"""Labelled objects as these clients write them: boxes, polygons, and the parts of an upload that describe its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weft.jobs.doors.access import DoorError
from weft.jobs.doors.powerai.identities import named_id
from weft.vision.views import ShapeView, VisionDataset


def described(fields: Mapping[str, str]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the keys and values, and the objects, that a form gives its files."""
    values: dict[str, str] = {}
    for name in ("user-metadata", "user_metadata"):
        if text := fields.get(name, "").strip():
            given = _json(name, text)
            if not isinstance(given, dict):
                raise DoorError("bad", f"{name} must be an object of keys and values, got another value")
            values |= {str(key): value_text(value) for key, value in given.items()}
    text = fields.get("labels", "").strip()
    return values, labels_of(_json("labels", text)) if text else []


def value_text(value: Any) -> str:
    """Return a value of a key as text: lists and objects as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise DoorError("bad", f"{name} must be JSON, got: {error}") from None


def labels_of(body: Any) -> list[dict[str, Any]]:
    """Return the objects of a body: a list, or an object that has one as `labels`."""
    given: Any = body.get("labels", []) if isinstance(body, Mapping) else body
    if isinstance(given, str):
        given = _json("labels", given)
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise DoorError("bad", "labels must be a list of objects, got another value")
    return given


def ids_of(text: str) -> Sequence[str]:
    """Return the ids that a query names, separated by commas."""
    return [one.strip() for one in text.split(",") if one.strip()]


def shape_of(known: VisionDataset, body: dict[str, Any], identity: str = "") -> ShapeView:
    """Return a labelled object of a body: a box, or polygons with a box around them."""
    tags = {named_id("tag", known.id, one.name): one.name for one in known.labels}
    name = body.get("name") or tags.get(str(body.get("tag_id", "")))
    if not isinstance(name, str) or not name.strip():
        raise DoorError("bad", "a label must have a name, or the tag_id of a tag, got neither; add name")
    polygons = _polygons(body.get("segment_polygons") or ())
    box = body.get("bndbox")
    if not isinstance(box, dict) and not polygons:
        raise DoorError(
            "bad", "a label must have bndbox {xmin,ymin,xmax,ymax} or segment_polygons, got neither"
        )
    try:
        if polygons:
            points = [point for ring in polygons for point in ring]
            xs, ys = [x for x, _ in points], [y for _, y in points]
            corners = (min(xs), min(ys), max(xs), max(ys))
        else:
            assert isinstance(box, dict)
            corners = (float(box["xmin"]), float(box["ymin"]), float(box["xmax"]), float(box["ymax"]))
    except (KeyError, TypeError, ValueError):
        raise DoorError("bad", "bndbox must have the numbers xmin, ymin, xmax and ymax, got others") from None
    return ShapeView(label=name.strip(), box=corners, polygons=polygons, id=identity)


def _polygons(given: Any) -> tuple[tuple[tuple[float, float], ...], ...]:
    try:
        return tuple(tuple((float(x), float(y)) for x, y in ring) for ring in given)
    except (TypeError, ValueError):
        raise DoorError("bad", "segment_polygons must be lists of [x, y], got another value") from None
