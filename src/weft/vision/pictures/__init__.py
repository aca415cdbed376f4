"""Pictures: safe reading of encoded ones. Headers are checked before anything is decoded; what comes out is upright.

Names that need OpenCV load it when they are first used: headers can be read without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.vision.pictures.headers import MAX_PIXELS, PictureHeader, read_header

if TYPE_CHECKING:
    from weft.vision.pictures.decoding import decode, encode_jpeg, encode_png
    from weft.vision.pictures.likeness import differing_bits, perceptual_hash

__all__ = [
    "MAX_PIXELS",
    "PictureHeader",
    "decode",
    "differing_bits",
    "encode_jpeg",
    "encode_png",
    "perceptual_hash",
    "read_header",
]
_LATER = {
    "decode": "decoding",
    "encode_jpeg": "decoding",
    "encode_png": "decoding",
    "differing_bits": "likeness",
    "perceptual_hash": "likeness",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
