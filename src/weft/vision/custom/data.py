"""The pictures of a version as a custom model's `onPreprocessing` gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.errors import UsageError
from weft.vision.pictures import decode, encode_png, read_header
from weft.vision.pictures.encoded import read_encoded
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape


def custom_images(version: DatasetVersion, folder: Path) -> tuple[str, list[str], Any]:
    """Return task, classes, and the labelled pictures: categories by path, or a list of annotations.

    Labels lie on upright pictures, and those who open a file by its name get it as it is stored: what a camera
    stored turned is written upright into `folder`.
    """
    if any(one.category is not None for one in version.pictures):
        named = {
            str(_upright(one, folder)): one.category for one in version.pictures if one.category is not None
        }
        return "classification", list(version.categories), named
    labelled = [one for one in version.pictures if one.shapes]
    if not labelled:
        raise UsageError(f"{version.name} must have labelled pictures to train on, got none; label some")
    return "detection", list(version.labels), [_annotation(one, folder) for one in labelled]


def _annotation(picture: LabelledPicture, folder: Path) -> dict[str, Any]:
    return {
        "filename": str(_upright(picture, folder)),
        "size": [picture.height, picture.width, 3],
        "objects": [_object(shape) for shape in picture.shapes],
    }


def _object(shape: LabelledShape) -> dict[str, Any]:
    return {
        "label": shape.label,
        "bbox": [int(side) if side == int(side) else side for side in shape.box],
        "segment_polygons": [[list(point) for point in ring] for ring in shape.polygons],
    }


def _upright(picture: LabelledPicture, folder: Path) -> Path:
    data = read_encoded(picture.path)
    if read_header(data, picture.name).orientation == 1:
        return picture.path.resolve()
    folder.mkdir(exist_ok=True)
    place = folder / f"{picture.id}.png"
    place.write_bytes(encode_png(decode(data)))
    return place
