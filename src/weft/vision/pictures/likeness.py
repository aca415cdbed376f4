"""Likeness of pictures: 64 bits that stay nearly the same when a picture is scaled, encoded again or made brighter.

The bits are signs of the low frequencies of a grey 32 x 32 picture (a discrete cosine transform), about their median.
"""

from __future__ import annotations

import cv2
import numpy as np

from weft.vision.pictures.decoding import Pixels

_SIDE = 32  # pixels that a picture is made into
_KEPT = 8  # frequencies a side


def perceptual_hash(pixels: Pixels) -> int:
    """Return 64 bits that describe how a picture looks; they fit a signed 64-bit column."""
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    low = np.asarray(cv2.dct(small.astype(np.float32)))[:_KEPT, :_KEPT].ravel()
    bits = low > np.median(low[1:])  # the first is the mean brightness
    value = int.from_bytes(np.packbits(bits).tobytes(), "big")
    return value - (1 << 64) if value >= 1 << 63 else value


def differing_bits(one: int, other: int) -> int:
    """Return how many of the 64 bits of two hashes differ."""
    return ((one ^ other) & (1 << 64) - 1).bit_count()
