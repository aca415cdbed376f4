"""Pictures that tests make: small, of every kind, whole and broken."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from weft.vision.formats.digest import digest_of
from weft.vision.records import DatasetVersion, LabelledPicture


def pixels(width: int = 32, height: int = 24, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return smooth colours, RGB, that differ by seed and from corner to corner."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)


def encoded(suffix: str = ".jpg", width: int = 32, height: int = 24, seed: int = 0) -> bytes:
    done, data = cv2.imencode(suffix, pixels(width, height, seed)[:, :, ::-1])
    assert done
    return data.tobytes()


def with_exif(jpeg: bytes, orientation: int = 1, **texts: str) -> bytes:
    """Return a JPEG with an EXIF block: an orientation, and texts for `camera` and `maker`."""
    tags = {"maker": 0x010F, "camera": 0x0110}
    entries = [(0x0112, 3, 1, struct.pack("<HH", orientation, 0))]
    blob = b""
    count = 1 + len(texts)
    start = 8 + 2 + 12 * count + 4
    for key, text in texts.items():
        raw = text.encode() + b"\0"
        raw += b"\0" * (5 - len(raw)) if len(raw) < 5 else b""
        entries.append((tags[key], 2, len(raw), struct.pack("<I", start + len(blob))))
        blob += raw
    entries.sort()
    body = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", count)
    body += b"".join(struct.pack("<HHI", tag, kind, many) + value for tag, kind, many, value in entries)
    body += b"\0\0\0\0" + blob
    segment = b"Exif\0\0" + body
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + jpeg[2:]


def picture_file(folder: Path, name: str, width: int = 32, height: int = 24, seed: int = 0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(Path(name).suffix, width, height, seed))
    return path


def version_of(
    *pictures: LabelledPicture, labels: tuple[str, ...] = (), categories: tuple[str, ...] = ()
) -> DatasetVersion:
    """Return a version of pictures, with its digest."""

    version = DatasetVersion(
        name="made", number=0, digest="", pictures=pictures, labels=labels, categories=categories
    )
    return replace(version, digest=digest_of(version))


def animated_png(still: bytes) -> bytes:
    """Return a PNG with a second frame, the same as its first."""
    start = still.index(b"IDAT") - 4
    size = struct.unpack(">I", still[start : start + 4])[0]
    frame = (
        still[16:24] + bytes(8) + struct.pack(">HHBB", 1, 10, 0, 0)
    )  # size, place, delay, and what becomes of it
    return b"".join(
        (
            still[:start],
            _chunk(b"acTL", struct.pack(">II", 2, 0)),
            _chunk(b"fcTL", struct.pack(">I", 0) + frame),
            still[start : start + 12 + size],
            _chunk(b"fcTL", struct.pack(">I", 1) + frame),
            _chunk(b"fdAT", struct.pack(">I", 2) + still[start + 8 : start + 8 + size]),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
