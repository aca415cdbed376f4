"""VGG Image Annotator (VIA 1 and 2): regions of each picture in pixels, with attributes that its user named."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from weft.errors import PictureError
from weft.vision.formats.plain.naming import UNREADABLE, PictureLabels
from weft.vision.formats.plain.outlines import ellipse, outlined
from weft.vision.records import LabelledShape

_UNNAMED = "object"  # the label of a region without attributes
# Attributes that name what a region is, before any other one.
_NAMES = ("class", "label", "name", "category", "type", "object")


def picture_labels(document: Any) -> Sequence[PictureLabels] | None:
    """Return what a project or an export of VIA says; None for another file."""
    if isinstance(document, Mapping):
        document = document.get("_via_img_metadata", document)
    if not isinstance(document, Mapping) or not document:
        return None
    entries = list(document.values())
    if not all(isinstance(one, Mapping) and "filename" in one and "regions" in one for one in entries):
        return None
    return [_labels(one) for one in entries]


def row_labels(rows: Sequence[Mapping[str, str]]) -> Sequence[PictureLabels] | None:
    """Return what the rows of VIA's CSV say, one for each region; None for those of another table."""
    if not rows or not {"filename", "region_shape_attributes", "region_attributes"} <= rows[0].keys():
        return None
    regions: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        drawn, named = (_object(row[f"region_{part}attributes"]) for part in ("shape_", ""))
        regions[row["filename"]] += [{"shape_attributes": drawn, "region_attributes": named}] if drawn else []
    return [_labels({"filename": name, "regions": found}) for name, found in regions.items()]


def _object(cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return None


def _labels(entry: Mapping[str, Any]) -> PictureLabels:
    regions = entry["regions"]
    regions = list(regions.values()) if isinstance(regions, Mapping) else regions
    shapes, problems = [], []
    for region in regions if isinstance(regions, list) else ():
        try:
            shapes.append(_shape(region))
        except UNREADABLE as error:
            problems.append(f"a region was left out: {error}")
    return PictureLabels(name=str(entry["filename"]), shapes=tuple(shapes), problems=tuple(problems))


def _shape(region: Mapping[str, Any]) -> LabelledShape:
    drawn, label = region["shape_attributes"], _label(region.get("region_attributes"))
    kind = drawn["name"]
    if kind == "rect":
        left, top, width, height = (float(drawn[key]) for key in ("x", "y", "width", "height"))
        return LabelledShape(label=label, box=(left, top, left + width, top + height))
    if kind in ("circle", "ellipse"):
        x, y = float(drawn["cx"]), float(drawn["cy"])
        across, down = (drawn["r"], drawn["r"]) if kind == "circle" else (drawn["rx"], drawn["ry"])
        return outlined(label, ellipse(x, y, float(across), float(down), _degrees(drawn)))
    if kind != "polygon":
        raise PictureError(f"regions must be rectangles, circles, ellipses or polygons, got {kind}")
    xs, ys = drawn["all_points_x"], drawn["all_points_y"]
    ring = tuple((float(x), float(y)) for x, y in zip(xs, ys, strict=True))
    if len(ring) < 3:
        raise PictureError(f"a polygon must have 3 points, got {len(ring)}")
    return outlined(label, ring)


def _degrees(drawn: Mapping[str, Any]) -> float:
    return math.degrees(float(drawn.get("theta", 0.0)))


def _label(attributes: Any) -> str:
    """Return the attribute that names a region: text that was written or chosen, or the box that was ticked."""
    if not isinstance(attributes, Mapping):
        return _UNNAMED
    by_name = {str(key).lower(): value for key, value in attributes.items()}
    for value in (*(by_name[name] for name in _NAMES if name in by_name), *by_name.values()):
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, Mapping):
            ticked = [str(key) for key, is_ticked in value.items() if is_ticked is True]
            if ticked:
                return ticked[0]
    return _UNNAMED
