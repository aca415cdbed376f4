"""The least that a data set must hold to be trained on, said in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.errors import UsageError
from weft.text import plural
from weft.vision.config.schema import VisionConfig
from weft.vision.records import DatasetVersion, LabelledPicture

LEAST_PICTURES = 5  # of a class
LEAST_CLASSES = 2  # of whole pictures


def check_minimum(config: VisionConfig, version: DatasetVersion) -> None:
    """Refuse a data set with too few labelled pictures for the task, or with a class that nothing is learned of."""
    if config.task == "anomaly":
        if len(version.pictures) < LEAST_PICTURES:
            raise UsageError(
                f"{version.name} must have at least {LEAST_PICTURES} pictures of what is normal, "
                f"got {len(version.pictures)}"
            )
        return
    detects = config.task in ("detection", "segmentation")
    names, kind = (version.labels, "label") if detects else (version.categories, "category")
    counts = _counts(version.pictures, detects)
    if detects and not counts:
        raise UsageError(
            f"{version.name} must have pictures with labelled objects to train a detector, got none; "
            "draw boxes or polygons first"
        )
    used = sum(counts[name] > 0 for name in names)
    if not detects and used < LEAST_CLASSES:
        raise UsageError(
            f"{version.name} must have pictures of at least {LEAST_CLASSES} categories to train a classifier, "
            f"got {used}; add pictures of another category"
        )
    few = [f"{name} has {counts[name]}" for name in names if counts[name] < LEAST_PICTURES]
    if few:
        raise UsageError(
            f"every {kind} of {version.name} must be on at least {plural(LEAST_PICTURES, 'picture')} to train, "
            f"got: {', '.join(few[:5])}; label more, or take the {kind} out"
        )
    learned = _counts([one for one in version.pictures if one.split in config.train_on], detects)
    unseen = [name for name in names if not learned[name]]
    if unseen:
        raise UsageError(
            f"every {kind} of {version.name} must be on pictures to learn from ({', '.join(config.train_on)}), "
            f"got none of {', '.join(unseen[:5])}; label more"
        )


def _counts(pictures: Iterable[LabelledPicture], detects: bool) -> Counter[str]:
    """Return how many pictures each class is on."""
    if detects:
        return Counter(label for one in pictures for label in {shape.label for shape in one.shapes})
    return Counter(one.category for one in pictures if one.category is not None)
