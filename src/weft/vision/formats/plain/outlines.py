"""Outlines as polygons of what programs store by a few numbers: circles, ellipses and turned boxes. Pure."""

from __future__ import annotations

import math

from weft.vision.geometry.boxes import union_box
from weft.vision.records import LabelledShape, Point

Ring = tuple[Point, ...]
_CORNERS = 24  # of the polygon that stands for an ellipse


def ellipse(x: float, y: float, across: float, down: float, degrees: float = 0.0) -> Ring:
    """Return the outline of an ellipse about a middle, with its two radii, turned clockwise."""
    angles = [2 * math.pi * corner / _CORNERS for corner in range(_CORNERS)]
    return turned(tuple((x + across * math.cos(a), y + down * math.sin(a)) for a in angles), (x, y), degrees)


def corners(left: float, top: float, right: float, bottom: float) -> Ring:
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def turned(ring: Ring, about: Point, degrees: float) -> Ring:
    """Return an outline turned clockwise, as it is seen, about a point."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    moved = [(x - about[0], y - about[1]) for x, y in ring]
    return tuple((about[0] + x * cos - y * sin, about[1] + x * sin + y * cos) for x, y in moved)


def outlined(label: str, ring: Ring) -> LabelledShape:
    """Return a shape of one polygon."""
    return LabelledShape(label=label, box=union_box(ring), polygons=(ring,))
