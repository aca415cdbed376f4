"""Decoding: from an encoded picture to upright RGB pixels, within bounds, at a reduced size where that is enough.

CMYK becomes RGB, 16 bits become 8, transparency is left out, an animation is its first frame. Orientation is
applied here and not by OpenCV, so that pixels and `read_header` always agree on which side is up.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from weft.errors import PictureError
from weft.serve.server.pictures.still import still_png
from weft.vision.pictures.encoded import read_encoded
from weft.vision.pictures.headers import MAX_PIXELS, PictureHeader, read_header

Pixels = npt.NDArray[np.uint8]
_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
cv2.setNumThreads(1)  # pictures are decoded side by side; one by itself is too small to share among threads
cv2.utils.logging.setLogLevel(
    cv2.utils.logging.LOG_LEVEL_SILENT
)  # what is wrong with a picture is raised, not printed


def decode(data: bytes | Path, *, max_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Return a picture as height x width x RGB, upright; its longer side has at most `max_side` pixels.

    A JPEG is decoded at a half, a quarter or an eighth of its size where that is still at least `max_side`: this
    takes a part of the time and of the memory.
    """
    name = "the picture"
    if isinstance(data, Path):
        name = data.name
        data = read_encoded(data)
    header = read_header(data, name, max_pixels=max_pixels)
    shrink = _shrink(header, max_side)
    pixels = _decoded(data, _REDUCED[shrink] | cv2.IMREAD_IGNORE_ORIENTATION)
    expected = (-(-header.stored_height // shrink), -(-header.stored_width // shrink))
    if pixels is None or pixels.shape[:2] != expected:
        raise PictureError(
            f"{name} must be a whole {header.kind}, got one that is damaged or of a kind that cannot be decoded; "
            "export it again"
        )
    turned = upright(np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8), header.orientation)
    return turned if max_side is None else shrunk(turned, max_side)


def _decoded(data: bytes, flags: int) -> cv2.typing.MatLike | None:
    still = still_png(data)
    try:
        return None if still is None else cv2.imdecode(np.frombuffer(still, np.uint8), flags)
    except cv2.error:
        return None


def _shrink(header: PictureHeader, max_side: int | None) -> int:
    if max_side is None or header.kind != "JPEG":
        return 1
    longest = max(header.stored_width, header.stored_height)
    return next((shrink for shrink in (8, 4, 2) if longest // shrink >= max_side), 1)


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """Return pixels turned and mirrored as EXIF's orientation (1 to 8) says."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def shrunk(pixels: Pixels, max_side: int) -> Pixels:
    """Return pixels whose longer side has at most so many, averaged; a smaller picture stays as it is."""
    height, width = pixels.shape[:2]
    longest = max(width, height)
    if longest <= max_side:
        return pixels
    size = (max(1, round(width * max_side / longest)), max(1, round(height * max_side / longest)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def encode_jpeg(pixels: Pixels, quality: int = 90) -> bytes:
    """Return RGB pixels as a JPEG."""
    return _encoded(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])


def encode_png(pixels: Pixels) -> bytes:
    """Return RGB pixels as a PNG."""
    return _encoded(".png", pixels, [])


def _encoded(kind: str, pixels: Pixels, options: list[int]) -> bytes:
    done, data = cv2.imencode(kind, cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2BGR), options)
    if not done:
        raise PictureError(f"a picture of {pixels.shape} cannot be encoded as {kind}")
    return data.tobytes()
