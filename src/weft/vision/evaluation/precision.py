"""Mean average precision as COCO counts it: 101 points of recall, overlaps of 0.5 to 0.95, at most 100 detections.

Equal to pycocotools to the last digits; that is an oracle of the tests, not needed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.vision.evaluation.boxes import overlaps

Array = np.ndarray[Any, Any]
THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # detections of a class in a picture


@dataclass(frozen=True)
class PictureResult:
    """True and found objects of one picture."""

    truth_boxes: Array
    truth_classes: Array
    boxes: Array
    scores: Array
    classes: Array
    truth_masks: Array | None = None  # n x height x width of 0 and 1: overlaps are then those of masks
    masks: Array | None = None


@dataclass(frozen=True)
class ClassPrecision:
    """One class over all pictures."""

    average: Array  # by threshold; NaN where there is no such object
    precision: Array  # thresholds x 101: the best at a recall or a higher one
    scores: Array  # 101: the confidence that reaches a recall, at the first threshold
    objects: int


@dataclass(frozen=True)
class MeanPrecision:
    """The figures of a detector."""

    map50: float
    map50_95: float
    by_class: tuple[ClassPrecision, ...]


def mean_precision(results: Sequence[PictureResult], classes: int) -> MeanPrecision:
    """Return the mean over classes that have objects; NaN where none has."""
    found = tuple(class_precision(results, number) for number in range(classes))
    averages = np.array([one.average for one in found if one.objects]).reshape(-1, len(THRESHOLDS))
    if not len(averages):
        return MeanPrecision(float("nan"), float("nan"), found)
    return MeanPrecision(float(averages[:, 0].mean()), float(averages.mean()), found)


def class_precision(results: Sequence[PictureResult], number: int) -> ClassPrecision:
    """Return the precision of one class at every recall."""
    scores: list[Array] = []
    hits: list[Array] = []
    objects = 0
    for result in results:
        true = np.flatnonzero(result.truth_classes == number)
        mine = np.flatnonzero(result.classes == number)
        mine = mine[np.argsort(-result.scores[mine], kind="mergesort")][:MOST]
        objects += len(true)
        scores.append(result.scores[mine])
        hits.append(match(_overlap_of(result, mine, true)))
    flat = np.concatenate(scores) if scores else np.zeros(0)
    order = np.argsort(-flat, kind="mergesort")
    matched = np.concatenate(hits, 1)[:, order] if hits else np.zeros((len(THRESHOLDS), 0), bool)
    return _curve(matched, flat[order], objects)


def match(shared: Array) -> Array:
    """Return which detections (best first) hit an object, thresholds x detections; each object is hit once."""
    found, true = shared.shape
    hits = np.zeros((len(THRESHOLDS), found), bool)
    free = np.ones((len(THRESHOLDS), true), bool)
    least = np.minimum(THRESHOLDS, 1 - 1e-10)
    for place in range(found if true else 0):
        values = np.where(free & (shared[place] >= least[:, None]), shared[place], -1.0)
        # The last of equal ones, as COCO's own loop takes it.
        best = true - 1 - values[:, ::-1].argmax(1)
        hit = values[np.arange(len(THRESHOLDS)), best] >= 0
        hits[:, place] = hit
        free[np.flatnonzero(hit), best[hit]] = False
    return hits


def _overlap_of(result: PictureResult, mine: Array, true: Array) -> Array:
    if result.masks is None or result.truth_masks is None:
        return overlaps(result.boxes[mine], result.truth_boxes[true])
    pixels = int(np.prod(result.masks.shape[1:]))
    ours = result.masks[mine].reshape(len(mine), pixels).astype(np.float32)
    theirs = result.truth_masks[true].reshape(len(true), pixels).astype(np.float32)
    shared = ours @ theirs.T
    union = ours.sum(1)[:, None] + theirs.sum(1)[None] - shared
    return np.asarray(shared / np.maximum(union, 1e-9))


def _curve(matched: Array, scores: Array, objects: int) -> ClassPrecision:
    thresholds, points = len(THRESHOLDS), len(RECALLS)
    precision, reached = np.zeros((thresholds, points)), np.zeros(points)
    if not objects:
        return ClassPrecision(np.full(thresholds, np.nan), precision, reached, 0)
    right, wrong = matched.cumsum(1, dtype=float), (~matched).cumsum(1, dtype=float)
    for place in range(thresholds if matched.shape[1] else 0):
        recall = right[place] / objects
        exact = right[place] / (right[place] + wrong[place] + np.spacing(1))
        best = np.maximum.accumulate(exact[::-1])[::-1]
        where = np.searchsorted(recall, RECALLS, side="left")
        there = where < len(recall)
        precision[place, there] = best[where[there]]
        if place == 0:
            reached[there] = scores[where[there]]
    return ClassPrecision(precision.mean(1), precision, reached, objects)
