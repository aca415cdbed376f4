"""The least that a data set must hold to be trained on, said in a sentence."""

from __future__ import annotations

from collections import Counter

from weft.errors import UsageError
from weft.text import plural
from weft.vision.config.schema import VisionConfig
from weft.vision.records import DatasetVersion

LEAST_PICTURES = 5  # of a class
LEAST_CLASSES = 2  # of whole pictures


def check_minimum(config: VisionConfig, version: DatasetVersion) -> None:
    """Refuse a data set with too few labelled pictures for the task."""
    detects = config.task in ("detection", "segmentation")
    chosen = [one for one in version.pictures if one.split in config.train_on]
    if detects:
        counts = Counter(label for one in chosen for label in {shape.label for shape in one.shapes})
        names, kind = version.labels, "label"
        if not names or not counts:
            raise UsageError(
                f"{version.name} must have pictures with labelled objects to train a detector, got none; "
                "draw boxes or polygons first"
            )
    else:
        counts = Counter(one.category for one in chosen if one.category is not None)
        names, kind = version.categories, "category"
        if config.task == "classification" and sum(counts[name] > 0 for name in names) < LEAST_CLASSES:
            raise UsageError(
                f"{version.name} must have pictures of at least {LEAST_CLASSES} categories to train a classifier, "
                f"got {sum(counts[name] > 0 for name in names)}; add pictures of another category"
            )
        if config.task == "anomaly":
            if len(chosen) < LEAST_PICTURES:
                raise UsageError(
                    f"{version.name} must have at least {LEAST_PICTURES} pictures of what is normal, got {len(chosen)}"
                )
            return
    few = [f"{name} has {counts[name]}" for name in names if counts[name] < LEAST_PICTURES]
    if few:
        raise UsageError(
            f"every {kind} of {version.name} must be on at least {plural(LEAST_PICTURES, 'picture')} to train, "
            f"got: {', '.join(few[:5])}; label more, or take the {kind} out"
        )
