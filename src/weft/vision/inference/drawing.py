"""Draw on pictures what a model found: boxes, polygons, captions."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.vision.inference.predictor import Prediction
from weft.vision.records import LabelledShape

Array = np.ndarray[Any, Any]
COLOURS = (
    (31, 119, 180),
    (214, 39, 40),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (140, 86, 75),
    (227, 119, 194),
)


def colour_of(label: str) -> tuple[int, int, int]:
    """Return a label's colour in RGB, the same in every picture and every run."""
    return COLOURS[zlib.crc32(label.encode()) % len(COLOURS)]


def draw_prediction(pixels: Array, prediction: Prediction) -> Array:
    """Return a copy of a picture (height x width x 3, RGB) with its objects, or its category, on it."""
    drawn = np.ascontiguousarray(pixels.copy())
    if prediction.scores:
        name, score = prediction.scores[0]
        _caption(drawn, f"{name} {score:.0%}", (4, 4), colour_of(name))
    draw_shapes(drawn, prediction.shapes)
    return drawn


def draw_shapes(drawn: Array, shapes: Sequence[LabelledShape]) -> None:
    """Draw objects on a picture in place."""
    import cv2

    thick = max(1, round(min(drawn.shape[:2]) / 300))
    for shape in shapes:
        colour = colour_of(shape.label)
        x0, y0, x1, y1 = (round(side) for side in shape.box)
        for ring in shape.polygons:
            cv2.polylines(drawn, [np.round(np.array(ring)).astype(np.int32)], True, colour, thick)
        if not shape.polygons:
            cv2.rectangle(drawn, (x0, y0), (x1, y1), colour, thick)
        sure = "" if shape.confidence is None else f" {shape.confidence:.0%}"
        number = "" if shape.track is None else f" {shape.track}"
        _caption(drawn, f"{shape.label}{number}{sure}", (x0, max(0, y0 - 14)), colour)


def _caption(drawn: Array, text: str, place: tuple[int, int], colour: tuple[int, int, int]) -> None:
    import cv2

    plain = text.encode("ascii", "replace").decode()  # what OpenCV's font has
    (width, height), base = cv2.getTextSize(plain, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 1)
    x, y = place
    cv2.rectangle(drawn, (x, y), (x + width + 4, y + height + base + 2), colour, -1)
    cv2.putText(
        drawn, plain, (x + 2, y + height + 1), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1, cv2.LINE_AA
    )
