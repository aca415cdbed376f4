"""From the bytes of a JPEG or PNG to the tensor that a model was trained on.

A picture's size is read from its header before anything is decoded: a small file may unpack to gigabytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

from weft.serve.card import Picture
from weft.serve.server.pictures.still import SIGNATURE, still_png
from weft.serve.server.protocols.tensors import NUMPY, REALS, Array
from weft.serve.server.refusal import RefusalError

cv2.setNumThreads(1)  # pictures come side by side; each by itself is too small to share among threads
_JPEG = b"\xff\xd8\xff"
# Bytes after FF that no header may hold. The decoder would pass over FF 00 and go on right after it, so that it would
# find another size than the one that was read here; and a scan or the end of the file cannot come before the size.
_NO_HEADER = frozenset({0x00, 0xD9, 0xDA})
_GREY = 114  # what a card's `pad` fills with
_NEAR = 1.5  # no pixel is left out by bilinear scaling if it goes down by less
_STRIP = 4  # a picture so many times longer than what is kept of it loses its ends first
_FLAGS = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


@dataclass(frozen=True)
class Geometry:
    """The place of the model's pixels in the picture: x = (x_model - left) / across."""

    across: float
    down: float
    left: float
    top: float
    width: int
    height: int

    def back(self, x: float, y: float) -> tuple[int, int]:
        """A point of the model's input, in the picture."""
        return (
            round(min(max((x - self.left) / self.across, 0), self.width)),
            round(min(max((y - self.top) / self.down, 0), self.height)),
        )

    def of(self, width: int, height: int) -> Geometry:
        """The same, in a picture of another size that looks alike."""
        across, down = self.across * self.width / width, self.down * self.height / height
        return Geometry(across, down, self.left, self.top, width, height)


@dataclass(frozen=True)
class Encoded:
    """A JPEG or PNG whose header has been read: it is no larger than allowed, so it may be decoded."""

    data: bytes
    width: int
    height: int

    @property
    def kind(self) -> str:
        return "JPEG" if self.data.startswith(_JPEG) else "PNG"


def row_of(data: bytes, picture: Picture, max_pixels: int, datatype: str = "FP32") -> tuple[Array, Geometry]:
    """One row of the model's input from a JPEG or PNG, and where its pixels lie in that.

    A JPEG can be decoded at a half, a quarter or an eighth of its size, which takes a part of the time: so it is,
    where what comes out is still larger than what is wanted.
    """
    encoded = opened(data, max_pixels)
    width, height = encoded.width, encoded.height
    shrink = shrink_for(width, height, picture) if encoded.kind == "JPEG" else 1
    pixels = decode(encoded, shrink)
    row, geometry = prepare(pixels, picture, datatype)
    if shrink > 1:
        turned = pixels.shape[1] != -(-width // shrink)
        geometry = geometry.of(height, width) if turned else geometry.of(width, height)
    return row, geometry


def shrink_for(width: int, height: int, picture: Picture) -> int:
    """By how much the decoder may make it smaller, however the camera was held."""
    for shrink in (8, 4, 2):
        for wide, high in ((width, height), (height, width)):
            least = _resized_to(wide, high, picture)
            if wide // shrink < least[0] or high // shrink < least[1]:
                break
        else:
            return shrink
    return 1


def opened(data: bytes, max_pixels: int) -> Encoded:
    """Read its header; what is no whole picture, or one too large, is refused."""
    width, height = _size(data)
    if not 0 < width * height <= max_pixels:
        raise RefusalError(413, f"a picture must have 1 to {max_pixels} pixels, got {width} x {height}")
    # The decoder makes up what is missing of a JPEG that is cut short.
    if data.startswith(_JPEG) and data.rfind(b"\xff\xd9") < 0:
        raise _broken("JPEG")
    return Encoded(data, width, height)


def decode(encoded: Encoded, shrink: int = 1) -> Array:
    """Its pixels, height x width x 3, blue first, turned as its camera was held; every `shrink`th a side."""
    still = still_png(encoded.data)
    if still is None:
        raise _broken(encoded.kind)
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(still, np.uint8), _FLAGS[shrink])
    except cv2.error as error:
        raise RefusalError(400, f"the picture cannot be decoded: {error}") from None
    if pixels is None or not _has_size(pixels, encoded, shrink):
        raise _broken(encoded.kind)
    return np.asarray(pixels)


def _has_size(pixels: Array, encoded: Encoded, shrink: int) -> bool:
    """Return whether pixels are as many as the header said, however the camera was held."""
    expected = {-(-encoded.width // shrink), -(-encoded.height // shrink)}
    return set(pixels.shape[:2]) == expected


def prepare(pixels: Array, picture: Picture, datatype: str = "FP32") -> tuple[Array, Geometry]:
    """One row of the model's input, as its card describes it, and where its pixels came from."""
    fitted, geometry = _fitted(pixels, picture)
    if picture.colours == "GREY":
        fitted = np.asarray(cv2.cvtColor(fitted, cv2.COLOR_BGR2GRAY))[:, :, None]
    elif picture.colours == "RGB":
        fitted = np.asarray(cv2.cvtColor(fitted, cv2.COLOR_BGR2RGB))
    kind = NUMPY[datatype]
    scaled = datatype in REALS  # others take pixels as they are
    row = np.empty((picture.channels, *fitted.shape[:2]), np.float32 if scaled else np.uint8)
    # Channel by channel, through a table: there are only 256 values.
    for place, plane in enumerate(cv2.split(fitted)):
        row[place] = cv2.LUT(plane, _tables(picture)[place]) if scaled else plane
    if picture.layout == "NHWC":
        row = row.transpose(1, 2, 0)
    return np.ascontiguousarray(row[None], kind), geometry


@lru_cache(maxsize=64)
def _tables(picture: Picture) -> Array:
    """Return what each value of a pixel becomes, by channel."""
    std = np.asarray(picture.std or (1.0,), np.float32)[:, None]
    mean = np.asarray(picture.mean or (0.0,), np.float32)[:, None]
    values = np.arange(256, dtype=np.float32) * (np.float32(picture.scale) / std) - mean / std
    return np.ascontiguousarray(np.broadcast_to(values, (picture.channels, 256)))


def _resized_to(width: int, height: int, picture: Picture) -> tuple[int, int]:
    """Return how large a picture of this size becomes, before anything is cut off or put around it."""
    if picture.resize == "stretch":
        return picture.width, picture.height
    if picture.resize == "pad":
        scale = min(picture.width / width, picture.height / height)
        return max(1, round(width * scale)), max(1, round(height * scale))
    scale = max(picture.width / picture.crop / width, picture.height / picture.crop / height)
    return max(picture.width, round(width * scale)), max(picture.height, round(height * scale))


def _fitted(pixels: Array, picture: Picture) -> tuple[Array, Geometry]:
    if picture.resize == "crop":
        return _cropped(pixels, picture)
    height, width = pixels.shape[:2]
    wide, high = _resized_to(width, height, picture)
    resized = _resized(pixels, wide, high)
    left, top = (picture.width - wide) // 2, (picture.height - high) // 2
    if picture.resize == "pad":
        whole = np.full((picture.height, picture.width, 3), _GREY, np.uint8)
        whole[top : top + high, left : left + wide] = resized
        resized = whole
    return resized, Geometry(wide / width, high / height, left, top, width, height)


def _cropped(pixels: Array, picture: Picture) -> tuple[Array, Geometry]:
    """The middle of a picture; a long strip first loses its ends, which would take gigabytes if it were made wider."""
    height, width = pixels.shape[:2]
    # As many on both sides, so that the middle stays where it is.
    longest = _STRIP * -(-height * picture.width // picture.height) + width % 2
    highest = _STRIP * -(-width * picture.height // picture.width) + height % 2
    left, top = max(0, width - longest) // 2, max(0, height - highest) // 2
    kept, inner = _middle(pixels[top : height - top, left : width - left], picture)
    return kept, replace(
        inner,
        left=inner.left - left * inner.across,
        top=inner.top - top * inner.down,
        width=width,
        height=height,
    )


def _middle(pixels: Array, picture: Picture) -> tuple[Array, Geometry]:
    """Return what is kept of a picture.

    One that is made smaller is cut first, at whole pixels, and nothing is scaled that would be thrown away.
    """
    height, width = pixels.shape[:2]
    wide, high = _resized_to(width, height, picture)
    left, top = (wide - picture.width) // 2, (high - picture.height) // 2
    right, bottom = left + picture.width, top + picture.height
    if wide > width or high > height:
        kept = _resized(pixels, wide, high)[top:bottom, left:right]
        return kept, Geometry(wide / width, high / height, -left, -top, width, height)
    left, right = round(left * width / wide), round(right * width / wide)
    top, bottom = round(top * height / high), round(bottom * height / high)
    across, down = picture.width / (right - left), picture.height / (bottom - top)
    kept = _resized(pixels[top:bottom, left:right], picture.width, picture.height)
    return kept, Geometry(across, down, -left * across, -top * down, width, height)


def _resized(pixels: Array, width: int, height: int) -> Array:
    """Scaled, bilinear; one made much smaller is averaged: bilinear reads four pixels only and would flicker.

    Averages of 2 x 2 are quick, those of other areas slow: so it goes down by halves while that is far, then to
    twice the size that is wanted, and a half once more.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    larger = width > pixels.shape[1] or height > pixels.shape[0]
    if larger or (pixels.shape[1] < _NEAR * width and pixels.shape[0] < _NEAR * height):
        return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR))
    while pixels.shape[1] >= 4 * width and pixels.shape[0] >= 4 * height:
        high, wide = pixels.shape[0] // 2, pixels.shape[1] // 2
        even = pixels[: 2 * high, : 2 * wide]
        pixels = np.asarray(cv2.resize(even, (wide, high), interpolation=cv2.INTER_AREA))
    twice = cv2.resize(pixels, (2 * width, 2 * height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.resize(twice, (width, height), interpolation=cv2.INTER_AREA))


def _size(data: bytes) -> tuple[int, int]:
    """Width and height, from the header alone."""
    if data.startswith(SIGNATURE):
        if len(data) < 24 or data[12:16] != b"IHDR":
            raise _broken("PNG")
        width, height = struct.unpack(">II", data[16:24])
        return int(width), int(height)
    if data.startswith(_JPEG):
        return _jpeg_size(data)
    raise RefusalError(415, "a picture must be a JPEG or a PNG, got neither")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            raise _broken("JPEG")
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
            continue
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers that stand alone
            at += 2
            continue
        if marker in _NO_HEADER:
            raise _broken("JPEG")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return int(width), int(height)
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    raise _broken("JPEG")


def _broken(kind: str) -> RefusalError:
    return RefusalError(400, f"the picture must be a whole {kind}, got one that is cut short or damaged")
