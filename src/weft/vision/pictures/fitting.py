"""Encoded pictures as rows of a model's input, by the server's own code.

Evaluation, `Predictor` and a deployment all read a picture through `fitted_row`, so that a model is judged on the very
pixels that it will be shown: decoded at the same size, turned, scaled and cut alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import PictureError
from weft.serve.card import Picture
from weft.serve.server.pictures.pictures import Geometry, prepare, row_of
from weft.serve.server.refusal import RefusalError
from weft.vision.pictures.decoding import decode
from weft.vision.pictures.encoded import read_encoded
from weft.vision.pictures.headers import MAX_PIXELS, read_header

Array = np.ndarray[Any, Any]
SERVED_KINDS = ("JPEG", "PNG")  # what a server takes; other kinds are decoded whole


def fitted_row(picture: Path | bytes | Array, rules: Picture) -> tuple[Array, Geometry]:
    """Return 1 x 3 x height x width of 0..255, and where its pixels lie in the upright picture.

    A picture is a path, encoded bytes, or decoded pixels (height x width x 3, RGB).
    """
    if isinstance(picture, np.ndarray):
        return prepare(np.ascontiguousarray(picture[:, :, ::-1]), rules, "UINT8")
    name = picture.name if isinstance(picture, Path) else "the picture"
    data = read_encoded(picture) if isinstance(picture, Path) else picture
    if read_header(data, name).kind not in SERVED_KINDS:
        return fitted_row(np.asarray(decode(data)), rules)
    try:
        return row_of(data, rules, MAX_PIXELS, "UINT8")
    except RefusalError as error:
        raise PictureError(
            f"{name} must be a picture that can be decoded: {error}; export it again"
        ) from None


def picture_map(geometry: Geometry) -> Array:
    """Return the map of 2 x 3 from places of the input to places of the picture."""
    return np.array(
        [
            [1 / geometry.across, 0, -geometry.left / geometry.across],
            [0, 1 / geometry.down, -geometry.top / geometry.down],
        ]
    )
