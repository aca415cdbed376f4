"""From the scores of all cells to detections: those that cover a better one of their class are left out. Pure numpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
OVERLAP = 0.6  # above which two boxes of a class are one object, in evaluation, inference and on the card


class FoundBoxes(NamedTuple):
    """Detections of one picture, best first."""

    boxes: Array  # n x 4
    scores: Array
    classes: Array
    cells: Array  # where they came from, for their masks


def overlaps(one: Array, other: Array) -> Array:
    """Return intersection over union of n and m boxes, n x m."""
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    areas = (one[:, 2:] - one[:, :2]).prod(-1)[:, None] + (other[:, 2:] - other[:, :2]).prod(-1)[None]
    return np.asarray(shared / np.maximum(areas - shared, 1e-9))


def best_boxes(
    boxes: Array,
    scores: Array,
    *,
    confidence: float = 0.25,
    overlap: float = OVERLAP,
    most: int = 100,
    tried: int = 600,
) -> FoundBoxes:
    """Return the detections of one picture from boxes (cells x 4) and scores (cells x classes).

    A cell may be found under several classes; boxes of other classes do not hide one another.
    """
    cells, classes = np.nonzero(scores >= confidence)
    values = scores[cells, classes]
    order = np.argsort(-values, kind="stable")[:tried]
    cells, classes, values = cells[order], classes[order], values[order]
    candidates = boxes[cells].astype(np.float64)
    # Boxes of different classes are moved apart, so that one pass serves all classes.
    span = (candidates.max() - min(candidates.min(), 0) + 1) if len(candidates) else 1.0
    apart = candidates + (classes * span)[:, None]
    covered = overlaps(apart, apart) > overlap
    alive = np.ones(len(candidates), bool)
    kept: list[int] = []
    for place in range(len(candidates)):
        if not alive[place]:
            continue
        kept.append(place)
        if len(kept) == most:
            break
        alive &= ~covered[place]
    picked = np.array(kept, int)
    return FoundBoxes(candidates[picked], values[picked], classes[picked], cells[picked])
