"""Boxes: areas, overlaps and clipping. A box is (xmin, ymin, xmax, ymax) in pixels, which may have fractions."""

from __future__ import annotations

from collections.abc import Iterable

from weft.vision.records import Box, Point


def box_area(box: Box) -> float:
    """Return the area of a box in square pixels; a box that is turned inside out has none."""
    return max(box[2] - box[0], 0.0) * max(box[3] - box[1], 0.0)


def box_iou(one: Box, other: Box) -> float:
    """Return the intersection of two boxes over their union, from 0 to 1."""
    inner = (max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3]))
    shared = box_area(inner)
    whole = box_area(one) + box_area(other) - shared
    return shared / whole if whole > 0 else 0.0


def clip_box(box: Box, width: float, height: float) -> Box | None:
    """Return the part of a box inside a picture, or None where nothing of it is inside."""
    clipped = (max(box[0], 0.0), max(box[1], 0.0), min(box[2], float(width)), min(box[3], float(height)))
    return clipped if clipped[0] < clipped[2] and clipped[1] < clipped[3] else None


def union_box(points: Iterable[Point]) -> Box:
    """Return the smallest box around points."""
    xs, ys = zip(*points, strict=True)
    return (min(xs), min(ys), max(xs), max(ys))
