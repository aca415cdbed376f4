"""Validity of a shape in its picture: what is wrong with it, in a sentence, and what of it can be kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from weft.vision.geometry.boxes import box_area, clip_box
from weft.vision.geometry.masks import decode_mask, encode_mask, mask_area, mask_box
from weft.vision.geometry.polygons import (
    clip_polygon,
    crosses_itself,
    polygon_area,
    polygon_box,
    polygons_of_mask,
    rasterise,
)
from weft.vision.records import LabelledShape

MOST_POINTS = 10_000  # of one ring: more is a mask
LONGEST_LABEL = 64  # characters, as IBM's product has it
_ROUNDING_PX = 1e-3  # that coordinates may lie outside by, as those of files with few digits do


def shape_area(shape: LabelledShape) -> float:
    """Return a shape's area in square pixels: of its mask, its polygons or its box."""
    if shape.mask is not None:
        return float(mask_area(shape.mask))
    if shape.polygons:
        return sum(map(polygon_area, shape.polygons))
    return box_area(shape.box)


def label_problem(label: str) -> str | None:
    """Return what is wrong with the name of a label, a category or a data set, or None."""
    if not label.strip() or label != label.strip():
        return f"a name must have letters and no spaces around them, got {label!r}"
    if len(label) > LONGEST_LABEL:
        return f"a name must have at most {LONGEST_LABEL} characters, got {len(label)}"
    if any(ord(letter) < 32 or ord(letter) == 127 or 0xD800 <= ord(letter) < 0xE000 for letter in label):
        return f"a name must have no control characters, got {label!r}"
    return None


def shape_problem(shape: LabelledShape, width: int, height: int) -> str | None:
    """Return what is wrong with a shape in a picture of this size, or None."""
    numbers = [*shape.box, *(value for ring in shape.polygons for point in ring for value in point)]
    if not all(math.isfinite(number) for number in numbers):
        return f"the coordinates of {shape.label!r} must be numbers, got one that is not finite"
    name = label_problem(shape.label)
    if name is not None:
        return name
    if shape.confidence is not None and not 0 <= shape.confidence <= 1:
        return f"the confidence of {shape.label!r} must be from 0 to 1, got {shape.confidence}"
    return _ring_problem(shape) or _mask_problem(shape, width, height) or _box_problem(shape, width, height)


def _ring_problem(shape: LabelledShape) -> str | None:
    for ring in shape.polygons:
        if not 3 <= len(ring) <= MOST_POINTS:
            return f"a polygon of {shape.label!r} must have 3 to {MOST_POINTS} points, got {len(ring)}"
        if polygon_area(ring) == 0:
            return f"a polygon of {shape.label!r} must have an area, got one that is flat"
        if crosses_itself(ring):
            return f"a polygon of {shape.label!r} must not cross itself; move its corners apart"
    return None


def _mask_problem(shape: LabelledShape, width: int, height: int) -> str | None:
    mask = shape.mask
    if mask is None:
        return None
    if (mask.width, mask.height) != (width, height):
        return (
            f"the mask of {shape.label!r} must have the picture's size {width} x {height}, "
            f"got {mask.width} x {mask.height}"
        )
    if any(count < 0 for count in mask.counts) or sum(mask.counts) != width * height:
        return f"the counts of the mask of {shape.label!r} must add up to {width * height}, got {sum(mask.counts)}"
    return None if mask_area(mask) else f"the mask of {shape.label!r} must have a pixel, got none"


def _box_problem(shape: LabelledShape, width: int, height: int) -> str | None:
    left, top, right, bottom = shape.box
    if not (left < right and top < bottom):
        return f"the box of {shape.label!r} must have a width and a height, got {_shown(shape)}"
    if (
        left < -_ROUNDING_PX
        or top < -_ROUNDING_PX
        or right > width + _ROUNDING_PX
        or bottom > height + _ROUNDING_PX
    ):
        return (
            f"the box of {shape.label!r} must lie in the picture of {width} x {height}, got {_shown(shape)}"
        )
    if any(
        not (-_ROUNDING_PX <= x <= width + _ROUNDING_PX and -_ROUNDING_PX <= y <= height + _ROUNDING_PX)
        for ring in shape.polygons
        for x, y in ring
    ):
        return f"a polygon of {shape.label!r} must lie in the picture of {width} x {height}"
    return None


def _shown(shape: LabelledShape) -> str:
    return "(" + ", ".join(f"{number:g}" for number in shape.box) + ")"


def within_picture(shape: LabelledShape, width: int, height: int) -> tuple[LabelledShape | None, str | None]:
    """Return what can be kept of a shape that came from a file, and a sentence where that is not the whole of it.

    A shape is clipped to its picture. A polygon that crosses itself becomes polygons around the area that it
    covers. None is left of a shape without area, and of one that is outside.
    """
    problem = shape_problem(shape, width, height)
    if problem is None:
        return _tight(shape), None
    if label_problem(shape.label) is not None or not all(map(math.isfinite, shape.box)):
        return None, problem + "; the shape was left out"
    kept = _mended(shape, width, height)
    if kept is None:
        return None, problem + "; the shape was left out"
    if shape_problem(kept, width, height) is not None:
        return None, problem + "; the shape was left out"
    return kept, problem + "; what lies in the picture was kept"


def _tight(shape: LabelledShape) -> LabelledShape:
    """Give a shape the box around its polygons, where a file had another one."""
    if not shape.polygons or shape.mask is not None:
        return shape
    box = polygon_box(shape.polygons)
    return shape if box == shape.box else replace(shape, box=box)


def _mended(shape: LabelledShape, width: int, height: int) -> LabelledShape | None:
    confidence = shape.confidence
    if confidence is not None and not (math.isfinite(confidence) and 0 <= confidence <= 1):
        confidence = None
    shape = replace(shape, confidence=confidence)
    if shape.mask is not None:
        whole = shape.mask.width * shape.mask.height
        if sum(shape.mask.counts) != whole or any(count < 0 for count in shape.mask.counts):
            return None
        bitmap = np.zeros((height, width), np.uint8)
        before = decode_mask(shape.mask)[:height, :width]
        bitmap[: before.shape[0], : before.shape[1]] = before
        mask = encode_mask(bitmap)
        box = mask_box(mask)
        return None if box is None else replace(shape, mask=mask, box=box)
    if shape.polygons:
        rings = [ring for ring in shape.polygons if 3 <= len(ring) <= MOST_POINTS and polygon_area(ring) > 0]
        if any(crosses_itself(ring) for ring in rings):
            rings = list(polygons_of_mask(rasterise(rings, width, height)))
        clipped = tuple(
            ring for ring in (clip_polygon(ring, width, height) for ring in rings) if len(ring) >= 3
        )
        return replace(shape, polygons=clipped, box=polygon_box(clipped)) if clipped else None
    left, right = sorted((shape.box[0], shape.box[2]))
    top, bottom = sorted((shape.box[1], shape.box[3]))
    inside = clip_box((left, top, right, bottom), width, height)
    return None if inside is None else replace(shape, box=inside)
