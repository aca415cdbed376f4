"""The file `weft.json` beside formats that have few words: whole records of pictures, each with what the format says.

A record counts only as long as the format's own words about that picture are those that were written with it. So
files that another program has changed are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.files import write_whole
from weft.vision.formats.documents import picture_document, picture_fields, shape_document, shape_of
from weft.vision.formats.found import LARGEST_JSON, FoundPicture, text_of
from weft.vision.records import LabelledPicture

NAME = "weft.json"
_FORM = 1  # of the file


@dataclass(frozen=True)
class Sidecar:
    """The records of one folder, by the path of the picture in it."""

    pictures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    def complete(self, found: FoundPicture, place: str, words: str) -> FoundPicture:
        """Return a picture with its whole record, if the format still says what it said when that was written."""
        entry = self.pictures.get(place)
        if not isinstance(entry, Mapping) or entry.get("said") != _digest(words):
            return found
        given, size = entry.get("shapes", []), entry.get("size")
        if not isinstance(given, list) or not all(isinstance(shape, Mapping) for shape in given):
            return found
        try:
            shapes = tuple(shape_of(shape) for shape in given)
        except PictureError:
            return found
        sides = [side for side in size if isinstance(side, int)] if isinstance(size, list) else []
        known = (sides[0], sides[1]) if len(sides) == 2 else None
        return replace(found, shapes=shapes, relative=False, size=known, **picture_fields(entry))


def read_sidecar(folder: Path) -> Sidecar:
    """Return the records beside a data set; none where there are none."""
    path = folder / NAME
    if not path.is_file():
        return Sidecar()
    try:
        document = json.loads(text_of(path, LARGEST_JSON))
        if document["form"] != _FORM:
            return Sidecar()
        return Sidecar(
            dict(document["pictures"]),
            tuple(str(label) for label in document["labels"]),
            tuple(str(category) for category in document["categories"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return Sidecar()


def record_of(picture: LabelledPicture, written_name: str, words: str) -> dict[str, Any]:
    """Return the record of one picture; `words` is what the format says about it."""
    entry = picture_document(picture, written_name)
    entry["said"] = _digest(words)
    entry["size"] = [picture.width, picture.height]
    if picture.shapes:
        entry["shapes"] = [shape_document(shape) for shape in picture.shapes]
    return entry


def write_sidecar(
    folder: Path, pictures: Mapping[str, Any], labels: tuple[str, ...], categories: tuple[str, ...]
) -> None:
    document = {"form": _FORM, "labels": labels, "categories": categories, "pictures": pictures}
    write_whole(folder / NAME, json.dumps(document, ensure_ascii=False, indent=1))


def _digest(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()[:24]
