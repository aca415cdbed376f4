"""Polygons: areas, clipping, crossings, and the way from a polygon to a bitmap and back.

A polygon is a ring of points without the first one repeated at its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.vision.geometry.boxes import union_box
from weft.vision.records import Box, Point

Bitmap = npt.NDArray[np.uint8]
_TOUCH = 1e-9  # of the length of an edge: nearer than this, points are the same


def polygon_area(polygon: Sequence[Point]) -> float:
    """Return the area inside a ring by the shoelace formula, whichever way it turns."""
    if len(polygon) < 3:
        return 0.0
    x0, y0 = polygon[0]  # as origin: far from it, digits are lost
    total = 0.0
    for (ax, ay), (bx, by) in zip(polygon, (*polygon[1:], polygon[0]), strict=True):
        total += (ax - x0) * (by - y0) - (bx - x0) * (ay - y0)
    return abs(total) / 2


def polygon_box(polygons: Sequence[Sequence[Point]]) -> Box:
    """Return the smallest box around all rings of an object."""
    return union_box(point for ring in polygons for point in ring)


def clip_polygon(polygon: Sequence[Point], width: float, height: float) -> tuple[Point, ...]:
    """Return the part of a ring inside a picture (Sutherland and Hodgman); empty where none is left.

    A ring that leaves the picture and comes back keeps parts of the border between its pieces, where they have no
    area.
    """
    ring = [(float(x), float(y)) for x, y in polygon]
    borders: tuple[tuple[int, float, int], ...] = (
        (0, 0.0, 1),
        (0, float(width), -1),
        (1, 0.0, 1),
        (1, float(height), -1),
    )
    for axis, limit, sign in borders:
        ring = _clip_side(ring, _inside_of(axis, limit, sign), _cut_at(axis, limit))
    return tuple(_without_repeats(ring)) if polygon_area(ring) > 0 else ()


def _inside_of(axis: int, limit: float, sign: int) -> Callable[[Point], bool]:
    return lambda point: sign * point[axis] >= sign * limit


def _cut_at(axis: int, limit: float) -> Callable[[Point, Point], Point]:
    def cut(one: Point, other: Point) -> Point:
        share = (limit - one[axis]) / (other[axis] - one[axis])
        across = one[1 - axis] + share * (other[1 - axis] - one[1 - axis])
        return (limit, across) if axis == 0 else (across, limit)

    return cut


def _clip_side(
    ring: list[Point], inside: Callable[[Point], bool], cut: Callable[[Point, Point], Point]
) -> list[Point]:
    kept: list[Point] = []
    for place, point in enumerate(ring):
        before = ring[place - 1]
        if inside(point) != inside(before):
            kept.append(cut(before, point))
        if inside(point):
            kept.append(point)
    return kept


def _without_repeats(ring: list[Point]) -> list[Point]:
    return [point for place, point in enumerate(ring) if point != ring[place - 1]] or ring[:1]


def crosses_itself(polygon: Sequence[Point]) -> bool:
    """Return whether two edges of a ring that are not neighbours meet, or neighbours run back over each other.

    Compares each pair of edges whose extents overlap: quick for the few hundred points that people draw.
    """
    points = np.asarray(polygon, np.float64).reshape(-1, 2)
    count = len(points)
    if count < 4:
        return count == 3 and polygon_area(polygon) == 0
    starts, ends = points, np.roll(points, -1, axis=0)
    low, high = np.minimum(starts, ends), np.maximum(starts, ends)
    for edge in range(count - 1):
        if _folds(points[edge - 1], points[edge], points[(edge + 1) % count]):
            return True
        near = (low[edge + 1 :] <= high[edge]).all(1) & (high[edge + 1 :] >= low[edge]).all(1)
        for other in np.flatnonzero(near) + edge + 1:
            if other == edge + 1 or (edge == 0 and other == count - 1):
                continue
            if _meet(starts[edge], ends[edge], starts[other], ends[other]):
                return True
    return _folds(points[-2], points[-1], points[0])


def _cross(origin: Any, one: Any, other: Any) -> float:
    return float(
        (one[0] - origin[0]) * (other[1] - origin[1]) - (one[1] - origin[1]) * (other[0] - origin[0])
    )


def _folds(before: Any, corner: Any, after: Any) -> bool:
    """Return whether a ring turns straight back at a corner."""
    ahead, back = after - corner, before - corner
    scale = math.hypot(*ahead) * math.hypot(*back)
    if scale == 0:
        return False  # a point twice: nothing is crossed
    return abs(ahead[0] * back[1] - ahead[1] * back[0]) <= _TOUCH * scale and float(ahead @ back) > 0


def _meet(a: Any, b: Any, c: Any, d: Any) -> bool:
    """Return whether the segments a-b and c-d share a point that is inside one of them."""
    if (a == c).all() or (a == d).all() or (b == c).all() or (b == d).all():
        return False  # rings may touch themselves at a corner, as clipped ones do
    one, two = _cross(a, b, c), _cross(a, b, d)
    three, four = _cross(c, d, a), _cross(c, d, b)
    return (one > 0) != (two > 0) and (three > 0) != (four > 0) and 0 not in (one, two, three, four)


def rasterise(polygons: Sequence[Sequence[Point]], width: int, height: int) -> Bitmap:
    """Return a bitmap of 0 and 1: a pixel is inside where its middle is, by the even-odd rule within each ring."""
    whole = np.zeros((height, width), np.uint8)
    for ring in polygons:
        one = np.zeros((height, width), np.uint8)
        # OpenCV's fillPoly paints pixels that an edge only touches, too; what counts is the middle of a pixel.
        _fill_even_odd(one, np.asarray(ring, np.float64))
        whole |= one
    return whole


def _fill_even_odd(bitmap: Bitmap, points: npt.NDArray[np.float64]) -> None:
    """Fill a ring row by row, between its crossings with the line through the middles of a row's pixels."""
    height, width = bitmap.shape
    starts, ends = points, np.roll(points, -1, axis=0)
    top = max(math.floor(float(points[:, 1].min()) - 0.5), 0)
    bottom = min(math.ceil(float(points[:, 1].max()) + 0.5), height)
    for row in range(top, bottom):
        middle = row + 0.5
        across = (starts[:, 1] <= middle) != (ends[:, 1] <= middle)
        if not across.any():
            continue
        one, two = starts[across], ends[across]
        xs = np.sort(one[:, 0] + (middle - one[:, 1]) * (two[:, 0] - one[:, 0]) / (two[:, 1] - one[:, 1]))
        borders = np.clip(np.ceil(xs - 0.5).astype(int), 0, width)
        for left, right in zip(borders[::2], borders[1::2], strict=True):
            bitmap[row, left:right] = 1


def polygons_of_mask(bitmap: Bitmap, tolerance_px: float = 0.0) -> tuple[tuple[Point, ...], ...]:
    """Return the outer rings of a bitmap's parts, simplified by at most a tolerance; holes are filled."""
    from weft.serve.server.pictures.outlines import rings_of_mask

    return rings_of_mask(bitmap, tolerance_px)
