"""From the bytes of a JPEG or PNG to the tensor that a model was trained on.

A picture's size is read from its header before anything is decoded: a small file may unpack to gigabytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from weft.serve.card import Picture
from weft.serve.server.refusal import RefusalError
from weft.serve.server.tensors import NUMPY, Array

cv2.setNumThreads(1)  # pictures come side by side; each by itself is too small to share among threads
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_GREY = 114  # what a card's `pad` fills with


@dataclass(frozen=True)
class Geometry:
    """Where the model's pixels lie in the picture: x = (x_model - left) / across."""

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


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height, from the header alone."""
    if data.startswith(_PNG):
        if len(data) < 24 or data[12:16] != b"IHDR":
            raise _broken("PNG")
        width, height = struct.unpack(">II", data[16:24])
        return int(width), int(height)
    if data.startswith(_JPEG):
        return _jpeg_size(data)
    raise RefusalError(415, "a picture must be a JPEG or a PNG, got neither")


def decode(data: bytes, max_pixels: int) -> Array:
    """Its pixels, height x width x 3, blue first, turned as its camera was held."""
    width, height = size_of(data)
    if not 0 < width * height <= max_pixels:
        raise RefusalError(413, f"a picture must have 1 to {max_pixels} pixels, got {width} x {height}")
    # The decoder makes up what is missing of a JPEG that is cut short.
    if data.startswith(_JPEG) and data.rfind(b"\xff\xd9") < 0:
        raise _broken("JPEG")
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise RefusalError(400, f"the picture cannot be decoded: {error}") from None
    if pixels is None:
        raise _broken("PNG" if data.startswith(_PNG) else "JPEG")
    return np.asarray(pixels)


def prepare(pixels: Array, picture: Picture, datatype: str = "FP32") -> tuple[Array, Geometry]:
    """One row of the model's input, as its card describes it, and where its pixels came from."""
    fitted, geometry = _fitted(pixels, picture)
    if picture.colours == "GREY":
        fitted = np.asarray(cv2.cvtColor(fitted, cv2.COLOR_BGR2GRAY))[:, :, None]
    elif picture.colours == "RGB":
        fitted = np.asarray(cv2.cvtColor(fitted, cv2.COLOR_BGR2RGB))
    kind = NUMPY[datatype]
    if kind.kind != "f":  # a model that takes pixels as they are
        row = fitted.astype(kind)
    else:
        std = np.asarray(picture.std or (1.0,), np.float32)
        mean = np.asarray(picture.mean or (0.0,), np.float32)
        row = _scaled(fitted, np.float32(picture.scale) / std, mean / std).astype(kind, copy=False)
    if picture.layout == "NCHW":
        row = row.transpose(2, 0, 1)
    return np.ascontiguousarray(row[None]), geometry


def _scaled(pixels: Array, factor: Array, shift: Array) -> Array:
    """Each value times `factor` less `shift`, by channel, through a table: there are only 256 of them."""
    values = np.arange(256, dtype=np.float32)[:, None] * factor - shift
    table = np.ascontiguousarray(np.broadcast_to(values, (256, pixels.shape[2]))[None])
    return np.asarray(cv2.LUT(pixels, table)).reshape(pixels.shape)


def _fitted(pixels: Array, picture: Picture) -> tuple[Array, Geometry]:
    height, width = pixels.shape[:2]
    if picture.resize == "stretch":
        across, down = picture.width / width, picture.height / height
        return _resized(pixels, picture.width, picture.height), Geometry(across, down, 0, 0, width, height)
    if picture.resize == "pad":
        scale = min(picture.width / width, picture.height / height)
        wide, high = max(1, round(width * scale)), max(1, round(height * scale))
        left, top = (picture.width - wide) // 2, (picture.height - high) // 2
        whole = np.full((picture.height, picture.width, 3), _GREY, np.uint8)
        whole[top : top + high, left : left + wide] = _resized(pixels, wide, high)
        return whole, Geometry(wide / width, high / height, left, top, width, height)
    scale = max(picture.width / picture.crop / width, picture.height / picture.crop / height)
    wide = max(picture.width, round(width * scale))
    high = max(picture.height, round(height * scale))
    left, top = (wide - picture.width) // 2, (high - picture.height) // 2
    cut = _resized(pixels, wide, high)[top : top + picture.height, left : left + picture.width]
    return cut, Geometry(wide / width, high / height, -left, -top, width, height)


def _resized(pixels: Array, width: int, height: int) -> Array:
    """Scaled, bilinear; one made smaller is averaged, as bilinear by itself reads four pixels only and would flicker.

    Averages of 2 x 2 are quick, those of other areas slow: so it goes down by halves while that is far, then to
    twice the size that is wanted, and a half once more.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    if width > pixels.shape[1] or height > pixels.shape[0]:
        return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR))
    while pixels.shape[1] >= 4 * width and pixels.shape[0] >= 4 * height:
        high, wide = pixels.shape[0] // 2, pixels.shape[1] // 2
        even = pixels[: 2 * high, : 2 * wide]
        pixels = np.asarray(cv2.resize(even, (wide, high), interpolation=cv2.INTER_AREA))
    twice = cv2.resize(pixels, (2 * width, 2 * height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.resize(twice, (width, height), interpolation=cv2.INTER_AREA))


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
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return int(width), int(height)
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    raise _broken("JPEG")


def _broken(kind: str) -> RefusalError:
    return RefusalError(400, f"the picture must be a whole {kind}, got one that is cut short or damaged")
