"""Headers of encoded pictures: kind, size, orientation and EXIF, without decoding a pixel.

A small file may unpack to gigabytes, so its size is read and checked first. A file that is cut short is refused
here as well, by the structure of its kind: parts that must be there are looked for, none is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from weft.errors import PictureError
from weft.vision.pictures.exif import Exif, read_exif

Kind = Literal["JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF"]
MAX_PIXELS = 100_000_000  # of a picture that is decoded: 300 MB in memory
CONTENT_TYPES: dict[Kind, str] = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WebP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "TIFF": "image/tiff",
}
SUFFIXES: dict[Kind, str] = {
    "JPEG": ".jpg",
    "PNG": ".png",
    "WebP": ".webp",
    "GIF": ".gif",
    "BMP": ".bmp",
    "TIFF": ".tif",
}
PICTURE_SUFFIXES = frozenset(
    [".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"]
)
# Bytes after FF that no header of a JPEG may hold. A decoder passes over FF 00 and goes on right after it, so that it
# would find another size than the one that was read here; a scan or the end cannot come before the size.
_NO_HEADER = frozenset({0x00, 0xD9, 0xDA})
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of a JPEG's size


@dataclass(frozen=True, kw_only=True)
class PictureHeader:
    """An encoded picture as its header describes it."""

    kind: Kind
    stored_width: int  # before its orientation is applied
    stored_height: int
    orientation: int = 1  # EXIF's: 1 to 8
    exif: Mapping[str, str] = field(default_factory=dict)  # camera, taken, ...: weft.vision.pictures.exif
    data_at: int = 0  # where a JPEG's first scan begins

    @property
    def width(self) -> int:
        """Return the width of the upright picture."""
        return self.stored_height if self.orientation >= 5 else self.stored_width

    @property
    def height(self) -> int:
        """Return the height of the upright picture."""
        return self.stored_width if self.orientation >= 5 else self.stored_height


def read_header(data: bytes, name: str = "the picture", *, max_pixels: int = MAX_PIXELS) -> PictureHeader:
    """Return what a picture is; what is none, is cut short or too large is refused with a sentence."""
    if not data:
        raise PictureError(f"{name} must be a picture, got an empty file; export it again")
    reader = _reader(data)
    if reader is None:
        raise PictureError(
            f"{name} must be a JPEG, PNG, WebP, GIF, BMP or TIFF by its first bytes, "
            f"got {data[:8]!r}; convert it or leave it out"
        )
    try:
        header = reader(data)
    except (struct.error, IndexError, ValueError):
        header = None
    if header is None:
        raise PictureError(
            f"{name} must be a whole picture, got one that is cut short or damaged; export it again"
        )
    pixels = header.stored_width * header.stored_height
    if not 0 < pixels <= max_pixels:
        raise PictureError(
            f"{name} must have 1 to {max_pixels} pixels, got {header.stored_width} x {header.stored_height}; "
            "make it smaller"
        )
    return header


def _reader(data: bytes) -> Callable[[bytes], PictureHeader | None] | None:
    if data[:3] == b"\xff\xd8\xff":
        return _jpeg
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _png
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _gif
    if data[:2] == b"BM":
        return _bmp
    if data[:4] in (b"II*\0", b"MM\0*"):
        return _tiff
    return None


def _jpeg(data: bytes) -> PictureHeader | None:
    """Walk the segments to the first scan, then look for the end; thumbnails inside segments have ends of their own."""
    at, size, exif = 2, None, Exif()
    while True:
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
            continue
        if marker in _ALONE:
            at += 2
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xDA and size is not None:
            break
        if marker in _NO_HEADER or length < 2:
            return None
        if marker in _SIZES and size is None:
            size = struct.unpack(">HH", data[at + 5 : at + 9])
        elif marker == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0" and not exif.found:
            exif = read_exif(data[at + 10 : at + 2 + length])
        at += 2 + length
    if data.rfind(b"\xff\xd9", at) < 0:
        return None
    height, width = size
    return PictureHeader(
        kind="JPEG",
        stored_width=width,
        stored_height=height,
        orientation=exif.orientation,
        exif=exif.values,
        data_at=at,
    )


def _png(data: bytes) -> PictureHeader | None:
    """Walk the chunks to the last one."""
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack(">II", data[16:24])
    at, exif, pixels = 8, Exif(), False
    while True:
        length = struct.unpack(">I", data[at : at + 4])[0]
        kind = data[at + 4 : at + 8]
        if at + 12 + length > len(data):
            return None
        if kind == b"IEND":
            break
        if kind == b"eXIf":
            exif = read_exif(data[at + 8 : at + 8 + length])
        pixels = pixels or kind == b"IDAT"
        at += 12 + length
    if not pixels:
        return None
    return PictureHeader(
        kind="PNG",
        stored_width=width,
        stored_height=height,
        orientation=exif.orientation,
        exif=exif.values,
    )


def _webp(data: bytes) -> PictureHeader | None:
    total = struct.unpack("<I", data[4:8])[0] + 8
    if total > len(data) + 1:  # an odd last chunk may lack its filling
        return None
    size, at, exif = None, 12, Exif()
    while at + 8 <= min(total, len(data)):
        kind, length = data[at : at + 4], struct.unpack("<I", data[at + 4 : at + 8])[0]
        body = at + 8
        if body + length > len(data):
            return None
        if size is None:
            size = _webp_size(kind, data[body : body + 10])
        if kind == b"EXIF":
            found = data[body : body + length]
            exif = read_exif(found.removeprefix(b"Exif\0\0"))
        at = body + length + (length & 1)
    if size is None:
        return None
    return PictureHeader(
        kind="WebP",
        stored_width=size[0],
        stored_height=size[1],
        orientation=exif.orientation,
        exif=exif.values,
    )


def _webp_size(kind: bytes, body: bytes) -> tuple[int, int] | None:
    if kind == b"VP8X":
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if kind == b"VP8L" and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", body[6:10])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _gif(data: bytes) -> PictureHeader | None:
    """Walk the blocks of the first frame; it is all that is shown of an animation."""
    width, height, packed = struct.unpack("<HHB", data[6:11])
    at = 13 + (3 << (packed & 7) + 1 if packed & 0x80 else 0)
    while data[at] == 0x21:  # extensions
        at = _after_blocks(data, at + 2)
    if data[at] != 0x2C:
        return None
    packed = data[at + 9]
    at += 10 + (3 << (packed & 7) + 1 if packed & 0x80 else 0)
    _after_blocks(data, at + 1)
    return PictureHeader(kind="GIF", stored_width=width, stored_height=height)


def _after_blocks(data: bytes, at: int) -> int:
    while data[at]:
        at += 1 + data[at]
    return at + 1


def _bmp(data: bytes) -> PictureHeader | None:
    pixels_at, header_size = struct.unpack("<II", data[10:18])
    if header_size == 12:
        width, height = struct.unpack("<HH", data[18:22])
        depth, packing = struct.unpack("<H", data[24:26])[0], 0
    else:
        width, height = struct.unpack("<ii", data[18:26])
        depth, packing = struct.unpack("<HI", data[28:34])
    height = abs(height)
    row_bytes = (width * depth + 31) // 32 * 4
    if packing in (0, 3) and pixels_at + row_bytes * height > len(data):
        return None
    return PictureHeader(kind="BMP", stored_width=width, stored_height=height)


def _tiff(data: bytes) -> PictureHeader | None:
    exif = read_exif(data)
    if exif.size is None or not exif.found:
        return None
    if any(start + count > len(data) for start, count in exif.strips):
        return None
    width, height = exif.size
    return PictureHeader(
        kind="TIFF",
        stored_width=width,
        stored_height=height,
        orientation=exif.orientation,
        exif=exif.values,
    )
