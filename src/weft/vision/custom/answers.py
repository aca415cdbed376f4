"""The answers of a user's `onInference` in our own words, whatever their shape: categories, or objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from weft.vision.inference.predictor import Prediction
from weft.vision.records import LabelledShape

_CORNERS = ("xmin", "ymin", "xmax", "ymax")


def custom_prediction(
    answer: Any, width: int, height: int, *, confidence: float = 0.0, model: str | None = None
) -> Prediction:
    """Return an answer for a picture of this size; objects that are less sure are left out."""
    given = _entries(answer)
    if any(all(side in one for side in _CORNERS) for one in given):
        found = [_shape(one, width, height, model) for one in given]
        kept = [one for one in found if one is not None and (one.confidence or 0.0) >= confidence]
        return Prediction(shapes=tuple(sorted(kept, key=lambda one: -(one.confidence or 0.0))))
    scores = [(str(one["label"]), _number(one.get("confidence"), 1.0)) for one in given if "label" in one]
    return Prediction(scores=tuple(sorted(scores, key=lambda one: -one[1])))


def shown(answer: Any, task: str, *, confidence: float, most: int) -> dict[str, Any]:
    """Return an answer as a server of ours gives it: `detections`, or `classified` with a heat map if there is one."""
    given = _entries(answer)
    if task == "detection" or any("xmin" in one for one in given):
        sure = [one for one in given if _number(one.get("confidence"), 1.0) >= confidence]
        return {"detections": sure}
    named = [
        {"label": str(one["label"]), "confidence": _number(one.get("confidence"), 1.0)}
        for one in given
        if "label" in one
    ]
    found: dict[str, Any] = {"classified": named[:most]}
    heat = next((one["heatmap"] for one in given if one.get("heatmap")), None)
    return found | ({"heatmap": heat} if heat else {})


def _entries(answer: Any) -> list[Mapping[str, Any]]:
    """Return the parts of an answer: itself, the list that it is, or the list that it holds."""
    if isinstance(answer, Mapping):
        inner = answer.get("classified")
        if isinstance(inner, Mapping):  # the oldest releases: {"classified": {"rose": 0.9}}
            return [{"label": name, "confidence": score} for name, score in inner.items()]
        answer = inner if isinstance(inner, Sequence) and not isinstance(inner, str) else [answer]
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        return []
    return [one for one in answer if isinstance(one, Mapping)]


def _shape(one: Mapping[str, Any], width: int, height: int, model: str | None) -> LabelledShape | None:
    sides = [_number(one.get(side), math.nan) for side in _CORNERS]
    if not all(map(math.isfinite, sides)):
        return None
    box = (
        min(max(sides[0], 0.0), width),
        min(max(sides[1], 0.0), height),
        min(max(sides[2], 0.0), width),
        min(max(sides[3], 0.0), height),
    )
    if box[0] >= box[2] or box[1] >= box[3]:
        return None
    sure = min(max(_number(one.get("confidence"), 1.0), 0.0), 1.0)
    return LabelledShape(label=str(one.get("label", "object")), box=box, confidence=sure, model=model)


def _number(value: Any, usual: float) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return usual
    return found if math.isfinite(found) else usual
