"""Small pictures of one colour, for the tests of the server and its soak."""

from __future__ import annotations

import cv2
import numpy as np

GREEN = (0, 255, 0)  # blue first, as cv2 has it


def picture(
    kind: str = ".png", colour: tuple[int, int, int] = GREEN, width: int = 32, height: int = 16
) -> bytes:
    """Return the bytes of a picture file of one colour."""
    pixels = np.full((height, width, 3), colour, np.uint8)
    return bytes(cv2.imencode(kind, pixels)[1])
