"""Outlines of objects: masks as sums of prototypes, and rings around them. Pure: arrays in, points out."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

Array = np.ndarray[Any, Any]
Ring = tuple[tuple[float, float], ...]
TOLERANCE_CELLS = 0.7  # that a ring may be off by, so that it has few corners


def cut_masks(coefficients: Array, prototypes: Array, boxes: Array, cell_px: float = 4.0) -> Array:
    """Return n x height x width of 0 and 1: prototypes, summed, inside each box (in pixels of the input)."""
    logits = np.tensordot(coefficients, prototypes, 1)
    ys = np.arange(logits.shape[1])[None, :, None] + 0.5
    xs = np.arange(logits.shape[2])[None, None, :] + 0.5
    x0, y0, x1, y1 = (boxes[:, side, None, None] / cell_px for side in range(4))
    inside = (xs >= x0 - 0.5) & (xs <= x1 + 0.5) & (ys >= y0 - 0.5) & (ys <= y1 + 0.5)
    return ((logits > 0) & inside).astype(np.uint8)


def rings_of_mask(bitmap: Array, tolerance_px: float = 0.0) -> tuple[Ring, ...]:
    """Return the outer rings of a bitmap's parts, simplified by at most a tolerance; holes are filled.

    Rings follow the outsides of pixels, so that rasterising them gives the bitmap back (holes aside).
    """
    # Twice the size with a border: contours run through the middles of pixels, and the outsides are wanted.
    twice = (np.asarray(bitmap) > 0).astype(np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    large = np.pad(twice, 1)
    found, _ = cv2.findContours(large, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    rings = []
    for contour in found:
        points = (contour.reshape(-1, 2).astype(np.float64) - 1) / 2
        # A contour in half pixels moves to the corners of the pixels that its points belong to.
        ring = np.floor(points) + (points - np.floor(points)) * 2
        if tolerance_px > 0:
            simple = cv2.approxPolyDP(ring.astype(np.float32)[:, None], tolerance_px, True)
            ring = simple.reshape(-1, 2).astype(np.float64) if len(simple) >= 3 else ring
        rings.append(ring)
    return tuple(
        tuple((float(x), float(y)) for x, y in ring) for ring in rings if len(ring) >= 3 and _area(ring) > 0
    )


def _area(ring: Array) -> float:
    x, y = ring[:, 0], ring[:, 1]
    return abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2
