"""The digest of a version: of the bytes of its pictures and of all that is said about them, in no order."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from weft.vision.formats.documents import shape_document
from weft.vision.records import DatasetVersion, LabelledPicture


def digest_of(version: DatasetVersion) -> str:
    """Return 64 hexadecimal digits; equal for versions with equal pictures, labels and splits."""
    whole = hashlib.sha256()
    whole.update(_bytes([list(version.labels), list(version.categories)]))
    for line in sorted(_bytes(_described(picture)) for picture in version.pictures):
        whole.update(line)
    return whole.hexdigest()


def _described(picture: LabelledPicture) -> list[Any]:
    shapes = sorted((shape_document(shape) for shape in picture.shapes), key=_bytes)
    return [
        picture.sha256,
        picture.name,
        picture.width,
        picture.height,
        picture.split,
        picture.category,
        picture.category_confidence,
        shapes,
        dict(picture.metadata),
        picture.film,
        picture.time_s,
    ]


def _bytes(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"
