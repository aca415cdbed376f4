"""Records of labelled pictures: what formats read and write, versions hold, and training and evaluation take.

Coordinates are in pixels of the upright picture (its EXIF orientation applied), from its left upper corner, and may
have fractions: a box that covers the whole picture is (0, 0, width, height).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Split = Literal["train", "validation", "test"]
Point = tuple[float, float]  # x, y
Box = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax; xmin < xmax, ymin < ymax


@dataclass(frozen=True)
class RunLengths:
    """A mask in run lengths, by columns as COCO has them: background first, then in turns."""

    width: int
    height: int
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class LabelledShape:
    """One labelled object of a picture: a box, and where drawn, its polygons or its mask."""

    label: str
    box: Box  # around the polygons or the mask, where there are some
    polygons: tuple[tuple[Point, ...], ...] = ()  # outer rings of the parts of one object
    mask: RunLengths | None = None  # painted by brush
    confidence: float | None = None  # of the model that made it; None: made or accepted by a person
    model: str | None = None  # that made it, as NAME@VERSION
    track: str | None = None  # the same object in other frames of a film
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class LabelledPicture:
    """One picture with its labels."""

    id: str  # unique in its data set, stable over versions
    name: str  # as it was imported
    path: Path  # of the encoded picture
    width: int  # of the upright picture
    height: int
    sha256: str = ""
    split: Split = "train"
    category: str | None = None  # of the whole picture, for classification
    category_confidence: float | None = None  # of the model that chose the category; None: a person did
    shapes: tuple[LabelledShape, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)  # of users, and from EXIF
    film: str | None = None  # the id of the film that this frame was taken from
    time_s: float | None = None  # of the frame in its film


@dataclass(frozen=True, kw_only=True)
class DatasetVersion:
    """An immutable state of a data set: a training names the one that it used."""

    name: str
    number: int  # 0: read from a folder or a file, in no library
    digest: str  # of all that is in it
    pictures: tuple[LabelledPicture, ...]
    categories: tuple[str, ...] = ()  # of whole pictures, in the order of class indices
    labels: tuple[str, ...] = ()  # of objects, in the order of class indices

    def of_split(self, split: Split) -> Iterator[LabelledPicture]:
        return (picture for picture in self.pictures if picture.split == split)
