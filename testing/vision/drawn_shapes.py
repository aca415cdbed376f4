"""Shapes that property tests draw: valid ones, of every kind, in a picture of a given size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from weft.vision.geometry import encode_mask, mask_box, polygon_area, polygon_box
from weft.vision.geometry.polygons import Bitmap
from weft.vision.records import Box, LabelledShape, Point

LABELS = ("cat", "dog", "ein Vogel", "<b>bold</b>", "日本", "a/b", "x.y")


@st.composite
def boxes(draw: st.DrawFn, width: int = 32, height: int = 24, least: float = 0.01) -> Box:
    left = draw(st.floats(0, width - 2 * least))
    top = draw(st.floats(0, height - 2 * least))
    right = draw(st.floats(left + least, width))
    bottom = draw(st.floats(top + least, height))
    return (left, top, right, bottom)


@st.composite
def rings(draw: st.DrawFn, width: int = 32, height: int = 24) -> tuple[Point, ...]:
    """Draw a star around a middle: it does not cross itself, and need not be convex."""
    x, y = draw(st.floats(4, width - 4)), draw(st.floats(4, height - 4))
    count = draw(st.integers(3, 9))
    reach = min(x, y, width - x, height - y)
    radii = [draw(st.floats(0.3, 1.0)) * reach for _ in range(count)]
    return tuple(
        (x + r * math.cos(2 * math.pi * k / count), y + r * math.sin(2 * math.pi * k / count))
        for k, r in enumerate(radii)
    )


@st.composite
def bitmaps(draw: st.DrawFn, width: int = 32, height: int = 24) -> Bitmap:
    """Draw a bitmap of a few rectangles, with at least one pixel."""
    bitmap = np.zeros((height, width), np.uint8)
    for _ in range(draw(st.integers(1, 4))):
        left, top = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        right, bottom = draw(st.integers(left + 1, width)), draw(st.integers(top + 1, height))
        bitmap[top:bottom, left:right] = 1
    return bitmap


@st.composite
def shapes(draw: st.DrawFn, width: int = 32, height: int = 24) -> LabelledShape:
    """Draw a valid shape: a box, polygons or a mask, by a person or by a model."""
    fields: dict[str, Any] = {
        "label": draw(st.sampled_from(LABELS)),
        "confidence": draw(st.none() | st.floats(0, 1)),
        "model": draw(st.none() | st.just("cells@3")),
        "track": draw(st.none() | st.just("track-1")),
        "id": draw(st.text("0123456789abcdef", max_size=8)),
    }
    kind = draw(st.sampled_from(["box", "polygons", "mask"]))
    if kind == "box":
        return LabelledShape(box=draw(boxes(width, height)), **fields)
    if kind == "polygons":
        drawn = draw(st.lists(rings(width, height), min_size=1, max_size=3))
        kept = tuple(ring for ring in drawn if polygon_area(ring) > 0)
        return LabelledShape(box=polygon_box(kept), polygons=kept, **fields)
    mask = encode_mask(draw(bitmaps(width, height)))
    box = mask_box(mask)
    assert box is not None
    return LabelledShape(box=box, mask=mask, **fields)
