"""Augmentation: pictures changed in a chosen way and to a chosen level, with their shapes moved along."""

from weft.vision.augment.applying import apply_change
from weft.vision.augment.planning import KINDS, AugmentStep, PictureChange, plan_change

__all__ = ["KINDS", "AugmentStep", "PictureChange", "apply_change", "plan_change"]
