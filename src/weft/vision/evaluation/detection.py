"""Results of a detector: precision and recall at every confidence, confusion, and its worst pictures. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.vision.evaluation.boxes import overlaps
from weft.vision.evaluation.precision import RECALLS, MeanPrecision, PictureResult

Array = np.ndarray[Any, Any]
WORST = 24  # pictures that are kept
LEAST_OVERLAP = 0.5  # of a detection with the object that it hits
STEPS = np.linspace(0.05, 0.95, 19)  # thresholds of a sweep
BACKGROUND = "(nothing)"


def detection_results(
    results: Sequence[PictureResult], found: MeanPrecision, classes: Sequence[str], names: Sequence[str]
) -> dict[str, Any]:
    """Return all that a results page shows, as plain data."""
    pairs = [pairs_of(result) for result in results]
    sweep = [_at(threshold, results, pairs) for threshold in STEPS]
    best = max(sweep, key=lambda one: one["f1"])["threshold"] if sweep else 0.5
    return {
        "map50": found.map50,
        "map50_95": found.map50_95,
        "threshold": best,
        "classes": [
            _of_class(number, name, found, results, pairs, best) for number, name in enumerate(classes)
        ],
        "confusion": {
            "labels": [*classes, BACKGROUND],
            "counts": confusion_of(results, pairs, len(classes), best).tolist(),
        },
        "curves": [
            {
                "label": name,
                "average_precision": _number(one.average[0]),
                "recall": RECALLS.tolist(),
                "precision": one.precision[0].tolist(),
                "confidence": one.scores.tolist(),
            }
            for name, one in zip(classes, found.by_class, strict=True)
        ],
        "sweep": sweep,
        "worst": _worst(results, pairs, names, best),
    }


def pairs_of(result: PictureResult) -> Array:
    """Return the object that each detection hits, best first, whatever its class; -1: none."""
    shared = overlaps(result.boxes, result.truth_boxes)
    hit = np.full(len(result.boxes), -1)
    free = np.ones(len(result.truth_boxes), bool)
    for place in range(len(hit) if len(free) else 0):
        # An object of the detection's own class comes first.
        alike = (result.truth_classes == result.classes[place]) * 1.0
        values = np.where(free & (shared[place] >= LEAST_OVERLAP), shared[place] + alike, -1)
        best = int(values.argmax())
        if values[best] >= 0:
            hit[place], free[best] = best, False
    return hit


def _at(threshold: float, results: Sequence[PictureResult], pairs: Sequence[Array]) -> dict[str, float]:
    right = predicted = true = 0
    for result, hit in zip(results, pairs, strict=True):
        sure = result.scores >= threshold
        good = sure & (hit >= 0)
        good[good] = result.truth_classes[hit[good]] == result.classes[good]
        right, predicted, true = (
            right + int(good.sum()),
            predicted + int(sure.sum()),
            true + len(result.truth_boxes),
        )
    precision, recall = right / predicted if predicted else 0.0, right / true if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"threshold": float(threshold), "precision": precision, "recall": recall, "f1": f1}


def confusion_of(
    results: Sequence[PictureResult], pairs: Sequence[Array], count: int, threshold: float
) -> Array:
    """Return counts, true class x found class; the last of each is nothing."""
    counts = np.zeros((count + 1, count + 1), int)
    for result, hit in zip(results, pairs, strict=True):
        sure = result.scores >= threshold
        missed = np.ones(len(result.truth_boxes), bool)
        for place in np.flatnonzero(sure):
            true = result.truth_classes[hit[place]] if hit[place] >= 0 else count
            counts[true, result.classes[place]] += 1
            if hit[place] >= 0:
                missed[hit[place]] = False
        for true in result.truth_classes[missed]:
            counts[true, count] += 1
    return counts


def _of_class(
    number: int,
    name: str,
    found: MeanPrecision,
    results: Sequence[PictureResult],
    pairs: Sequence[Array],
    threshold: float,
) -> dict[str, Any]:
    counts = confusion_of(results, pairs, len(found.by_class), threshold)
    right = int(counts[number, number])
    predicted, true = int(counts[:, number].sum()), int(counts[number].sum())
    one = found.by_class[number]
    return {
        "label": name,
        "objects": one.objects,
        "map50": _number(one.average[0]),
        "map50_95": _number(one.average.mean()),
        "precision": right / predicted if predicted else 0.0,
        "recall": right / true if true else 0.0,
    }


def _worst(
    results: Sequence[PictureResult], pairs: Sequence[Array], names: Sequence[str], threshold: float
) -> list[dict[str, Any]]:
    """Return the pictures with most objects missed, invented or taken for another class."""
    rows: list[dict[str, Any]] = []
    for result, hit, name in zip(results, pairs, names, strict=True):
        sure = np.flatnonzero(result.scores >= threshold)
        hits = hit[sure]
        confused = sum(
            1 for place, true in zip(sure, hits, strict=True)
            if true >= 0 and result.truth_classes[true] != result.classes[place]
        )  # fmt: skip
        invented = int((hits < 0).sum())
        missed = len(result.truth_boxes) - int((hits >= 0).sum())
        if confused + invented + missed:
            rows.append({"picture": name, "missed": missed, "invented": invented, "confused": confused})
    rows.sort(key=lambda row: -(row["missed"] + row["invented"] + 2 * row["confused"]))
    return rows[:WORST]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
