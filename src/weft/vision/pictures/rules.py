"""The rules by which a picture is fitted into a model's input; they travel in the card of the exported model."""

from __future__ import annotations

from weft.serve.card import Picture
from weft.vision.config.schema import VisionConfig

TEST_CROP = 0.95  # the share of a side that a classifier sees of a picture when it is asked


def picture_rules(config: VisionConfig) -> Picture:
    """Return how a picture is fitted into the input; the network scales the pixels itself."""
    height, width = config.sides
    if config.task in ("detection", "segmentation"):
        return Picture(height=height, width=width, resize="pad", scale=1.0)
    # Small pictures are shown whole.
    crop = 1.0 if max(config.sides) <= 64 else TEST_CROP
    return Picture(height=height, width=width, resize="crop", crop=crop, scale=1.0)
