"""Labels in XML, as Pascal VOC and IBM's zip have them: an <object> for each shape."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.vision.formats.documents import extras_of, mask_document, mask_of, shape_extras
from weft.vision.formats.found import LARGEST_TEXT, text_of
from weft.vision.geometry.boxes import union_box
from weft.vision.records import Box, LabelledShape, Point

_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?encoding=["']([A-Za-z0-9._-]{1,40})["']""")
_DECLARATION = re.compile(r"\ufeff?\s*<\?xml[^>]*\?>")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")


def parse_xml(path: Path) -> ET.Element:
    """Return the root of an XML file; document types, which can make a small file large, are refused."""
    text = _decoded(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise PictureError(f"{path.name} must be XML without a document type; remove it")
    try:
        return ET.fromstring(text)
    except ET.ParseError as error:
        raise PictureError(f"{path.name} must be XML: {error}; export it again") from None


def _decoded(path: Path) -> str:
    """Return a file's text by its byte order mark or by what its first line declares, without that line."""
    try:
        data = path.read_bytes() if path.stat().st_size <= LARGEST_TEXT else b""
        declared = _DECLARED.match(data)
        coding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        if declared is not None:
            coding = declared[1].decode("ascii")
        text = data.decode(coding) if coding and coding.lower() != "utf-8" else text_of(path)
    except (OSError, LookupError, UnicodeError) as error:
        raise PictureError(
            f"{path.name} must be a readable file of labels: {error}; save it as UTF-8"
        ) from None
    return _DECLARATION.sub("", text, count=1)


def size_in(root: ET.Element) -> tuple[int, int] | None:
    """Return the width and height that a file of labels tells."""
    width, height = root.findtext("size/width"), root.findtext("size/height")
    try:
        size = int(float(width or 0)), int(float(height or 0))
    except (ValueError, OverflowError):
        return None
    return size if size[0] > 0 and size[1] > 0 else None


def shapes_in(root: ET.Element, name: str, problems: list[str]) -> tuple[LabelledShape, ...]:
    """Return the shapes of a file of labels; those that cannot be read are told."""
    shapes = []
    for element in root.iter("object"):
        try:
            shapes.append(_shape(element))
        except PictureError as error:
            problems.append(f"{name}: {error}; the object was left out")
    return tuple(shapes)


def _shape(element: ET.Element) -> LabelledShape:
    label = (element.findtext("name") or "").strip()
    extra: Any = {}
    if element.findtext("weft"):
        try:
            extra = json.loads(element.findtext("weft") or "{}")
        except (ValueError, RecursionError):
            extra = {}
    extra = extra if isinstance(extra, dict) else {}
    label = extra.get("label", label) if isinstance(extra.get("label", label), str) else label
    if not label:
        raise PictureError("an object must have a name, got none")
    rings = _ibm_rings(element) or _voc_rings(element) or _turned_ring(element.find("robndbox"))
    mask = mask_of(extra["mask"]) if isinstance(extra.get("mask"), dict) else None
    fields = extras_of(extra)
    confidence = element.findtext("confidence")
    if confidence and "confidence" not in fields:
        fields["confidence"] = _number(confidence, "a confidence")
    box = _box(element.find("bndbox"))
    if box is None:
        if not rings:
            raise PictureError(f"an object must have a bndbox, got {label!r} without one")
        box = union_box(point for ring in rings for point in ring)
    return LabelledShape(label=label, box=box, polygons=rings, mask=mask, **fields)


def _box(element: ET.Element | None) -> Box | None:
    if element is None:
        return None
    left, top, right, bottom = (_number(element.findtext(corner), corner) for corner in _CORNERS)
    return (left, top, right, bottom)


def _number(text: str | None, what: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise PictureError(f"{what} must be a number, got {(text or '')[:40]!r}") from None


def _ibm_rings(element: ET.Element) -> tuple[tuple[Point, ...], ...]:
    """Return <segment_polygons><polygon><point><value>x</value><value>y</value></point>... of IBM's zip."""
    rings = []
    for polygon in element.iterfind("segment_polygons/polygon"):
        points = []
        for point in polygon.iterfind("point"):
            values = [_number(value.text, "a point") for value in point.iterfind("value")]
            if len(values) != 2:
                raise PictureError(f"a point must have two values, got {len(values)}")
            points.append((values[0], values[1]))
        rings.append(tuple(points))
    return tuple(rings)


def _voc_rings(element: ET.Element) -> tuple[tuple[Point, ...], ...]:
    """Return <polygon><pt><x/><y/></pt>... or <polygon><x1/><y1/><x2/>..., as labelling programs write them."""
    rings = []
    for polygon in element.iterfind("polygon"):
        points = [
            (_number(point.findtext("x"), "x"), _number(point.findtext("y"), "y"))
            for point in polygon.iterfind("pt")
        ]
        number = 1
        while not polygon.findall("pt") and polygon.find(f"x{number}") is not None:
            x, y = polygon.findtext(f"x{number}"), polygon.findtext(f"y{number}")
            points.append((_number(x, "x"), _number(y, "y")))
            number += 1
        rings.append(tuple(points))
    return tuple(rings)


def _turned_ring(element: ET.Element | None) -> tuple[tuple[Point, ...], ...]:
    """Return the corners of roLabelImg's turned box: its middle, its sides and an angle in radians."""
    if element is None:
        return ()
    x, y, width, height, angle = (
        _number(element.findtext(name), name) for name in ("cx", "cy", "w", "h", "angle")
    )
    cos, sin = math.cos(angle), math.sin(angle)
    corners = ((-width, -height), (width, -height), (width, height), (-width, height))
    return (tuple((x + (a * cos - b * sin) / 2, y + (a * sin + b * cos) / 2) for a, b in corners),)


def object_element(shape: LabelledShape, *, ibm: bool = False) -> ET.Element:
    """Return a shape as an <object>, with polygons in IBM's form or in the one of labelling programs."""
    element = ET.Element("object")
    if not ibm:
        for name, value in (("pose", "Unspecified"), ("truncated", "0"), ("difficult", "0")):
            ET.SubElement(element, name).text = value
    ET.SubElement(element, "name").text = xml_text(shape.label)
    box = ET.SubElement(element, "bndbox")
    for corner, number in zip(_CORNERS, shape.box, strict=True):
        ET.SubElement(box, corner).text = written_number(number)
    extras = shape_extras(shape)
    if xml_text(shape.label) != shape.label:
        extras["label"] = shape.label
    if shape.mask is not None:
        extras["mask"] = mask_document(shape.mask)
    if shape.confidence is not None:
        ET.SubElement(element, "confidence").text = written_number(shape.confidence)
    if ibm:
        ET.SubElement(element, "_id").text = shape.id
        ET.SubElement(element, "generate_type").text = "manual" if shape.confidence is None else "auto"
    _add_rings(element, shape, ibm)
    if extras:
        ET.SubElement(element, "weft").text = json.dumps(extras)
    return element


def _add_rings(element: ET.Element, shape: LabelledShape, ibm: bool) -> None:
    home = ET.SubElement(element, "segment_polygons") if ibm and shape.polygons else element
    for ring in shape.polygons:
        polygon = ET.SubElement(home, "polygon")
        for x, y in ring:
            point = ET.SubElement(polygon, "point" if ibm else "pt")
            for name, number in (("value", x), ("value", y)) if ibm else (("x", x), ("y", y)):
                ET.SubElement(point, name).text = written_number(number)


def written_number(number: float) -> str:
    """Return a number that reads back as the same; whole ones without a point, as most programs expect."""
    return str(int(number)) if number == int(number) else repr(float(number))


def xml_text(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return "".join(
        letter
        for letter in text
        if letter >= " " and letter not in "\ufffe\uffff" and not "\ud800" <= letter <= "\udfff"
    ).strip()
