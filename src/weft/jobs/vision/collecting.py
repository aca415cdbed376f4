"""Collecting of pictures that a served model is unsure of, into a data set where they are labelled and learned from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.vision.library import Library
    from weft.vision.views import VisionFile


def is_doubtful(answer: Mapping[str, Any], below: float) -> bool:
    """Return whether a model is unsure: of its first class, of one of its objects, or of there being none."""
    classes, objects = answer.get("classified"), answer.get("detections")
    if classes:
        return float(classes[0]["confidence"]) < below
    if objects is not None:
        return not objects or min(float(one["confidence"]) for one in objects) < below
    return False


def collect_picture(
    library: Library,
    dataset: str,
    picture: bytes,
    answer: Mapping[str, Any],
    model: str,
    *,
    user: str | None,
    by: str,
) -> VisionFile:
    """Add a picture with automatic labels of a model; one that the data set has already stays as it is. Blocks."""
    from weft.vision.records import LabelledShape

    name = f"collected-{hashlib.sha256(picture).hexdigest()[:16]}"
    added = library.add(dataset, picture, name, skip_duplicates=True, user=user, by=by)
    known = library.file(added.id)
    if known.state == "labelled" or known.shapes or known.category is not None:
        return added
    shapes = tuple(
        LabelledShape(
            label=one["label"],
            box=(float(one["xmin"]), float(one["ymin"]), float(one["xmax"]), float(one["ymax"])),
            confidence=float(one["confidence"]),
            model=model,
        )
        for one in answer.get("detections") or ()
        if one["xmin"] < one["xmax"] and one["ymin"] < one["ymax"]
    )
    best = (answer.get("classified") or (None,))[0]
    category = None if best is None else str(best["label"])
    sure = None if best is None else float(best["confidence"])
    if shapes or category is not None:
        library.save_labels(added.id, known.revision, shapes, category, category_confidence=sure, user=user)
    return added
