"""CVAT for images 1.1: one XML file with an <image> for each picture, in pixels; masks in run lengths by rows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np

from weft.errors import PictureError
from weft.vision.formats.found import SPLIT_WORDS
from weft.vision.formats.plain.naming import UNREADABLE, PictureLabels
from weft.vision.formats.plain.outlines import corners, ellipse, outlined, turned
from weft.vision.geometry.masks import encode_mask, mask_box
from weft.vision.pictures.headers import MAX_PIXELS
from weft.vision.records import LabelledShape

_SHAPES = ("box", "polygon", "ellipse", "mask", "polyline", "points", "cuboid", "skeleton")
Size = tuple[int, int]


def picture_labels(document: ET.Element) -> Sequence[PictureLabels] | None:
    """Return what a file of CVAT says; None for another file. Tracks of a film have no pictures that they name."""
    if document.tag != "annotations" or document.find("image") is None:
        return None
    return [_labels(one) for one in document.iterfind("image")]


def _labels(image: ET.Element) -> PictureLabels:
    shapes, problems = [], []
    size = _size(image)
    for element in image:
        if element.tag not in _SHAPES:
            continue
        try:
            shapes.append(_shape(element, size))
        except UNREADABLE as error:
            problems.append(f"a {element.tag} was left out: {error}")
    tags = [tag.get("label") for tag in image.iterfind("tag")]
    return PictureLabels(
        name=image.get("name", ""),
        shapes=tuple(shapes),
        category=tags[0] if tags else None,
        split=SPLIT_WORDS.get(image.get("subset", "").lower()),
        size=size,
        problems=tuple(problems),
    )


def _size(image: ET.Element) -> Size | None:
    sides = [image.get(name, "") for name in ("width", "height")]
    return (int(sides[0]), int(sides[1])) if all(one.isdecimal() for one in sides) else None


def _numbers(element: ET.Element, *names: str) -> list[float]:
    return [float(element.attrib[name]) for name in names]


def _shape(element: ET.Element, size: Size | None) -> LabelledShape:
    label, degrees = element.attrib["label"], float(element.get("rotation") or 0)
    if element.tag == "box":
        left, top, right, bottom = _numbers(element, "xtl", "ytl", "xbr", "ybr")
        if not degrees:
            return LabelledShape(label=label, box=(left, top, right, bottom))
        middle = ((left + right) / 2, (top + bottom) / 2)
        return outlined(label, turned(corners(left, top, right, bottom), middle, degrees))
    if element.tag == "polygon":
        pairs = [pair.split(",") for pair in element.attrib["points"].split(";")]
        ring = tuple((float(x), float(y)) for x, y in pairs)
        if len(ring) < 3:
            raise PictureError(f"a polygon must have 3 points, got {len(ring)}")
        return outlined(label, ring)
    if element.tag == "ellipse":
        x, y, across, down = _numbers(element, "cx", "cy", "rx", "ry")
        return outlined(label, ellipse(x, y, across, down, degrees))
    if element.tag == "mask":
        return _mask(element, label, size)
    raise PictureError("shapes must be boxes, polygons, ellipses or masks")


def _mask(element: ET.Element, label: str, size: Size | None) -> LabelledShape:
    """Return a mask, whose run lengths go over the rows of its own window, background first."""
    if size is None or size[0] * size[1] > MAX_PIXELS:
        raise PictureError(f"a mask must be of a picture whose size is known, got {size}")
    left, top, width, height = (int(number) for number in _numbers(element, "left", "top", "width", "height"))
    counts = [int(count) for count in element.attrib["rle"].split(",")]
    if min(counts) < 0 or sum(counts) != width * height or min(left, top, width, height) < 0:
        raise PictureError(f"the counts of a mask must add up to {width} x {height}, got {sum(counts)}")
    if left + width > size[0] or top + height > size[1]:
        raise PictureError(f"a mask must be inside of a picture of {size[0]} x {size[1]}")
    window = np.repeat(np.arange(len(counts), dtype=np.uint8) & 1, counts).reshape(height, width)
    bitmap = np.zeros((size[1], size[0]), np.uint8)
    bitmap[top : top + height, left : left + width] = window
    mask = encode_mask(bitmap)
    box = mask_box(mask)
    if box is None:
        raise PictureError("a mask must have a pixel, got none")
    return LabelledShape(label=label, box=box, mask=mask)
