"""Outlines without a model: GrabCut from a box, and a wand that takes what has nearly the colour of a point."""

from __future__ import annotations

import cv2
import numpy as np

from weft.errors import PictureError
from weft.vision.geometry.polygons import Bitmap, polygons_of_mask
from weft.vision.pictures.decoding import Pixels, shrunk
from weft.vision.records import Box, Point

Rings = tuple[tuple[Point, ...], ...]
WORK_SIDE = 640  # pixels of the longer side that GrabCut works on: more takes seconds
_ROUNDS = 4
_LEAST_SHARE = 0.02  # of the largest part: smaller ones are specks
_SMOOTH = 0.004  # of the longer side, by which outlines may be simpler


def grabcut(pixels: Pixels, box: Box) -> Rings:
    """Return the outline of the object in a box: what differs in colour from what is outside of it."""
    height, width = pixels.shape[:2]
    small = shrunk(pixels, WORK_SIDE)
    scale = small.shape[1] / width
    left, top = max(0, round(box[0] * scale)), max(0, round(box[1] * scale))
    right, bottom = min(small.shape[1], round(box[2] * scale)), min(small.shape[0], round(box[3] * scale))
    if right - left < 3 or bottom - top < 3:
        raise PictureError(
            "a box must be at least a few pixels large for an outline to be found in it; draw a larger one"
        )
    if (left, top) == (0, 0) and (right, bottom) == (small.shape[1], small.shape[0]):
        raise PictureError("a box must leave some of the picture outside, as background; draw a smaller one")
    mask = np.zeros(small.shape[:2], np.uint8)
    cv2.setRNGSeed(0)  # the same box gives the same outline
    models = np.zeros((1, 65)), np.zeros((1, 65))
    rectangle = (left, top, right - left, bottom - top)
    cv2.grabCut(
        cv2.cvtColor(small, cv2.COLOR_RGB2BGR), mask, rectangle, *models, _ROUNDS, cv2.GC_INIT_WITH_RECT
    )
    found = ((mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)).astype(np.uint8)
    return _outlines(found, width / small.shape[1], height / small.shape[0], width, height)


def wand(pixels: Pixels, point: Point, tolerance: float = 16) -> Rings:
    """Return the outline of what hangs together with a point and has nearly its colour."""
    height, width = pixels.shape[:2]
    x, y = int(point[0]), int(point[1])
    if not (0 <= x < width and 0 <= y < height):
        raise PictureError(
            f"the point must lie in the picture of {width} x {height}, got ({point[0]:g}, {point[1]:g})"
        )
    mask = np.zeros((height + 2, width + 2), np.uint8)
    flags = 4 | cv2.FLOODFILL_MASK_ONLY | cv2.FLOODFILL_FIXED_RANGE | (1 << 8)
    near = (tolerance, tolerance, tolerance)
    cv2.floodFill(np.ascontiguousarray(pixels), mask, (x, y), (0, 0, 0), near, near, flags)
    return _outlines(mask[1:-1, 1:-1], 1.0, 1.0, width, height)


def _outlines(found: Bitmap, across: float, down: float, width: int, height: int) -> Rings:
    """Return the outer rings of the larger parts of a bitmap, without holes and specks, in pixels of the picture."""
    closed = np.asarray(cv2.morphologyEx(found, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8)), np.uint8)
    count, parts, sizes, _ = cv2.connectedComponentsWithStats(closed, connectivity=4)
    if count < 2:
        return ()
    areas = sizes[1:, cv2.CC_STAT_AREA]
    large = [place + 1 for place, area in enumerate(areas) if area >= max(4, _LEAST_SHARE * areas.max())]
    kept = np.isin(parts, large).astype(np.uint8)
    rings = polygons_of_mask(kept, _SMOOTH * max(found.shape))
    return tuple(
        tuple(
            (min(max(x * across, 0.0), float(width)), min(max(y * down, 0.0), float(height))) for x, y in ring
        )
        for ring in rings
    )
