"""Shapes that follow their picture: mapped, clipped to the new picture, and dropped where too little is left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.vision.geometry.affine import Affine
from weft.vision.geometry.boxes import box_area, clip_box, union_box
from weft.vision.geometry.masks import decode_mask, encode_mask, mask_area, mask_box
from weft.vision.geometry.polygons import clip_polygon, polygon_area, polygon_box
from weft.vision.records import Box, LabelledShape, RunLengths


def move_shape(
    shape: LabelledShape, to: Affine, width: int, height: int, *, least_visible: float = 0.0
) -> LabelledShape | None:
    """Return a shape where a map takes it within a picture of the new size.

    None where less than `least_visible` of its area is still inside. A box that turns by other than quarters
    becomes the box around its turned corners; one with polygons or a mask becomes the box around those.
    """
    grown = abs(to.determinant)
    if shape.mask is not None:
        mask = move_mask(shape.mask, to, width, height)
        box = mask_box(mask)
        if box is None or mask_area(mask) < least_visible * grown * mask_area(shape.mask):
            return None
        return replace(shape, mask=mask, polygons=(), box=box)
    if shape.polygons:
        moved = [clip_polygon([to.point(x, y) for x, y in ring], width, height) for ring in shape.polygons]
        rings = tuple(ring for ring in moved if len(ring) >= 3)
        before = grown * sum(map(polygon_area, shape.polygons))
        if not rings or sum(map(polygon_area, rings)) < least_visible * before:
            return None
        return replace(shape, polygons=rings, box=polygon_box(rings))
    whole = move_box(shape.box, to)
    clipped = clip_box(whole, width, height)
    if clipped is None or box_area(clipped) < least_visible * box_area(whole):
        return None
    return replace(shape, box=clipped)


def move_box(box: Box, to: Affine) -> Box:
    """Return the box around the mapped corners of a box."""
    left, top, right, bottom = box
    return union_box(to.point(x, y) for x, y in ((left, top), (right, top), (right, bottom), (left, bottom)))


def move_mask(mask: RunLengths, to: Affine, width: int, height: int) -> RunLengths:
    """Return a mask in the new picture: each of its pixels takes the value of the old one that its middle came from."""
    before = decode_mask(mask)
    back = to.inverse()
    xs, ys = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    from_x = np.floor(back.a * xs + back.b * ys + back.c + 1e-9).astype(np.int64)
    from_y = np.floor(back.d * xs + back.e * ys + back.f + 1e-9).astype(np.int64)
    inside = (from_x >= 0) & (from_x < mask.width) & (from_y >= 0) & (from_y < mask.height)
    after = np.zeros((height, width), np.uint8)
    after[inside] = before[from_y[inside], from_x[inside]]
    return encode_mask(after)
