"""A picture file as one row of a model's input: as the server makes it, so that what is checked is what is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.card import Picture

MAX_PIXELS = 1 << 28


def read_picture(path: Path, rules: Picture) -> np.ndarray[Any, Any]:
    try:
        from weft.serve.server.pictures.pictures import row_of
        from weft.serve.server.refusal import RefusalError
    except ImportError as error:
        raise ModelError(
            f"{error.name} must be installed to read pictures; pip install 'weft[serve]'"
        ) from error
    try:
        rows, _ = row_of(path.read_bytes(), rules, MAX_PIXELS)
    except (OSError, RefusalError) as error:
        raise ModelError(f"{path} must be a picture: {error}") from error
    row: np.ndarray[Any, Any] = rows[0]
    return row
