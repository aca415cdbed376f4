"""A picture file as the tensor of one row, by the rules on a model's card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ModelError
from weft.serve.card import Picture

if TYPE_CHECKING:
    from PIL.Image import Image

FILL = 114  # grey, around a picture that is padded


def read_picture(path: Path, rules: Picture) -> np.ndarray[Any, Any]:
    """The picture turned upright, resized, cropped, scaled and laid out as the model wants it."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened).convert("L" if rules.colours == "GREY" else "RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ModelError(f"{path} must be a picture: {error}") from error
    return tensor_of(np.asarray(_fitted(upright, rules)), rules)


def tensor_of(pixels: np.ndarray[Any, Any], rules: Picture) -> np.ndarray[Any, Any]:
    """Pixels (height, width[, 3]) in 0..255, already of the right size, as float32 of the model's layout."""
    array: np.ndarray[Any, Any] = pixels.astype(np.float32)
    if array.ndim == 2:
        array = array[:, :, None]
    if rules.colours == "BGR":
        array = array[:, :, ::-1]
    array = array * np.float32(rules.scale)
    if rules.mean:
        array = array - np.asarray(rules.mean, np.float32)
    if rules.std:
        array = array / np.asarray(rules.std, np.float32)
    return np.ascontiguousarray(array.transpose(2, 0, 1) if rules.layout == "NCHW" else array)


def _fitted(image: Image, rules: Picture) -> Image:
    from PIL.Image import Resampling, new

    bilinear = Resampling.BILINEAR
    size = rules.width, rules.height
    if rules.resize == "stretch":
        return image.resize(size, bilinear)
    ratios = rules.width / image.width, rules.height / image.height
    if rules.resize == "pad":
        ratio = min(ratios)
        inner = image.resize(_sides(image, ratio), bilinear)
        canvas = new(image.mode, size, FILL if image.mode == "L" else (FILL, FILL, FILL))
        canvas.paste(inner, ((rules.width - inner.width) // 2, (rules.height - inner.height) // 2))
        return canvas
    larger = image.resize(_sides(image, max(ratios) / rules.crop), bilinear)
    left, top = (larger.width - rules.width) // 2, (larger.height - rules.height) // 2
    return larger.crop((left, top, left + rules.width, top + rules.height))


def _sides(image: Image, ratio: float) -> tuple[int, int]:
    return max(1, round(image.width * ratio)), max(1, round(image.height * ratio))
