"""Pictures: safe reading of encoded ones. Headers are checked before anything is decoded; what comes out is upright."""

from weft.vision.pictures.decoding import decode, encode_jpeg, encode_png
from weft.vision.pictures.headers import MAX_PIXELS, PictureHeader, read_header
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
