"""Encoded pictures, read from files within bounds, without a decoder."""

from __future__ import annotations

from pathlib import Path

from weft.errors import PictureError
from weft.text import format_size

MAX_BYTES = 512 << 20  # of an encoded picture


def read_encoded(path: Path) -> bytes:
    """Return the bytes of a file that is to be a picture; one too large to be one is not read."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise PictureError(
                f"{path.name} must have at most {format_size(MAX_BYTES, trimmed=True)}, got {size} bytes"
            )
        return path.read_bytes()
    except OSError as error:
        raise PictureError(f"{path} must be a readable picture: {error.strerror}; check the path") from None
