"""Tasks: the loss of a batch and the score of a set, for each kind of label."""

from __future__ import annotations

from weft.vision.config.schema import VisionConfig
from weft.vision.training.tasks.base import SetScore, TrainingTask

__all__ = ["SetScore", "TrainingTask", "task_for"]


def task_for(config: VisionConfig, classes: tuple[str, ...]) -> TrainingTask:
    """Return the task of a resolved configuration that has a training loop."""
    if config.task in ("detection", "segmentation"):
        from weft.vision.training.tasks.detection import DetectionTask

        return DetectionTask(config, classes)
    from weft.vision.training.tasks.classification import ClassificationTask

    return ClassificationTask(config, classes)
