"""Decode pictures for training: upright, RGB, and no larger than training needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.vision.records import LabelledPicture

Array = np.ndarray[Any, Any]
BLUR = 0.9  # pixels a side that a reduced picture may have, in times of what is read of it


def decode_picture(path: Path, least: tuple[int, int] | None = None) -> Array:
    """Return height x width x 3; a JPEG may come at 1/2, 1/4 or 1/8, but not under `least` (height, width)."""
    return decode_bytes(path.read_bytes(), least)


def decode_bytes(data: bytes, least: tuple[int, int] | None = None) -> Array:
    """Return the pixels of an encoded picture, as `decode_picture` does."""
    if least is not None and data[:3] == b"\xff\xd8\xff" and (found := _by_turbo(data, least)) is not None:
        return found
    careful = _careful()
    return _by_pillow(data, least) if careful is None else np.asarray(careful(data))


@cache
def _cv2() -> Any:
    try:
        import cv2
    except ImportError:
        return None
    cv2.setNumThreads(1)  # pictures are decoded side by side
    return cv2


def has_opencv() -> bool:
    return _cv2() is not None


@cache
def _careful() -> Any:
    """Return the decoder that upholds every limit; None where what it needs is not installed."""
    try:
        from weft.vision.pictures import decode
    except ImportError:
        return None
    return decode


@cache
def _turbo() -> Any:
    try:
        import simplejpeg  # type: ignore[import-untyped]
    except ImportError:
        return None
    return simplejpeg


def _by_turbo(data: bytes, least: tuple[int, int]) -> Array | None:
    """Return a plain upright JPEG by libjpeg-turbo at reduced size; None: it needs the careful decoder."""
    turbo = _turbo()
    if turbo is None or b"Exif" in data[:64]:
        return None
    try:
        height, width, space, _ = turbo.decode_jpeg_header(data)
        if space not in ("YCbCr", "Gray", "RGB") or height * width > 1 << 27:
            return None
        # Halves, quarters and eighths have quick code in the library; the sizes between are slower than the whole.
        part = next(
            (one for one in (8, 4, 2) if height / one >= least[0] * BLUR and width / one >= least[1] * BLUR),
            1,
        )
        pixels = turbo.decode_jpeg(
            data,
            "RGB",
            fastdct=True,
            fastupsample=True,
            min_height=-(-height // part) if part > 1 else 0,
            min_width=-(-width // part) if part > 1 else 0,
            min_factor=part,
        )
    except ValueError:
        return None
    return np.asarray(pixels)


def _by_pillow(data: bytes, least: tuple[int, int] | None) -> Array:
    import io

    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data)) as picture:
        if least is not None:
            picture.draft("RGB", (least[1], least[0]))
        return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))


def thread_count(asked: int | None) -> int:
    """Return the threads that decode: as many as this process may use of the cores, 16 at most."""
    return asked or min(16, len(os.sched_getaffinity(0)))


def stored_pictures(
    pictures: Sequence[LabelledPicture], size: tuple[int, int], threads: int | None = None
) -> Array:
    """Return n x height x width x 3, every picture stretched to `size`: it is whole, and random maps know its sides."""
    store = np.empty((len(pictures), *size, 3), np.uint8)

    def fill(place: int) -> None:
        picture = pictures[place]
        try:
            pixels = decode_picture(picture.path, size)
        except (OSError, ValueError, WeftError) as error:
            raise WeftError(
                f"{picture.path} must be a picture that can be decoded: {error}; take it out"
            ) from error
        store[place] = resized(pixels, size)

    with ThreadPoolExecutor(thread_count(threads), thread_name_prefix="decode") as pool:
        list(pool.map(fill, range(len(pictures))))
    return store


def resized(pixels: Array, size: tuple[int, int]) -> Array:
    """Return pixels stretched to a height and a width, averaged where they become fewer."""
    if pixels.shape[:2] == size:
        return pixels
    cv2 = _cv2()
    if cv2 is not None:
        smaller = pixels.shape[0] > size[0] and pixels.shape[1] > size[1]
        how = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(pixels, (size[1], size[0]), interpolation=how))
    import torch

    rows = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float()
    resized = torch.nn.functional.interpolate(rows, size, mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()
